"""Kernels of `nn.fast.embed`: dropout(LayerNorm(sum of the rows of up to three tables)), and its gradients.

Rows are divided and dropped as in `residual_kernels`. The numbers of the rows that were read are kept in
`keys`, (tables, n): the backward pass reads the rows again.
"""

import triton
import triton.language as tl

from bermo.nn.fast.dropout_kernels import kept_chunks, limit_of
from bermo.nn.fast.residual_kernels import chunk_exists, chunk_of_vector, gradient_of


@triton.jit
def _note(ids, keys, position, is_row, size, base):
    """Keep the numbers of the rows of positions: ids, which may repeat, and where the model's own part is."""
    key = tl.load(ids + position % size, mask=is_row, other=0).to(tl.int32) + base
    tl.store(keys + position, key, mask=is_row)
    return key.to(tl.int64)


@triton.jit
def _chunk_of(table, row, exists, c: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr):
    """Chunk c of some rows of a table."""
    at = row * D + (c * WIDTH + tl.arange(0, WIDTH))[None, :]
    return tl.load(table + at, mask=exists, other=0.0)


@triton.jit(do_not_specialize=["rows", "first_size", "second_size", "third_size"])
def embed_forward(
    first,
    second,
    third,
    first_ids,
    second_ids,
    third_ids,
    first_size,
    second_size,
    third_size,
    first_height,
    second_height,
    third_height,
    gamma,
    beta,
    seed,
    y,
    half,
    means,
    spreads,
    keys,
    rows,
    eps,
    P,
    D: tl.constexpr,
    N: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    TABLES: tl.constexpr,
    DROP: tl.constexpr,
    ROUNDS: tl.constexpr,
    HALF: tl.constexpr,
):
    """y, its copy in another dtype, mean and 1/deviation of HEIGHT positions of one group."""
    group = tl.program_id(1)
    total = rows * tl.num_programs(1)
    local = (tl.program_id(0) * HEIGHT + tl.arange(0, HEIGHT))[:, None]
    is_row = local < rows
    position = group * rows + local
    first_row = _note(first_ids, keys, position, is_row, first_size, group * first_height)
    second_row, third_row = first_row, first_row
    if TABLES > 1:
        second_row = _note(second_ids, keys + total, position, is_row, second_size, group * second_height)
    if TABLES > 2:
        third_row = _note(third_ids, keys + 2 * total, position, is_row, third_size, group * third_height)
    if DROP:
        limit, grown = limit_of(P)
        number = group * rows + tl.program_id(0) * HEIGHT + tl.arange(0, HEIGHT)
        kept = kept_chunks(seed, number.to(tl.int64), limit, N, HEIGHT, WIDTH, ROUNDS)
    sums = ()
    added = tl.zeros([HEIGHT, WIDTH], tl.float32)
    for c in tl.static_range(N):
        exists = chunk_exists(is_row, c, D, WIDTH)
        z = _chunk_of(first, first_row, exists, c, D, WIDTH)
        if TABLES > 1:
            z += _chunk_of(second, second_row, exists, c, D, WIDTH)
        if TABLES > 2:
            z += _chunk_of(third, third_row, exists, c, D, WIDTH)
        sums += (z,)
        added += z
    mean = (tl.sum(added, 1) / D)[:, None]
    squares = tl.zeros([HEIGHT, WIDTH], tl.float32)
    for c in tl.static_range(N):
        # Where there is no column nothing may count.
        centred = tl.where(chunk_exists(is_row, c, D, WIDTH), sums[c] - mean, 0.0)
        squares += centred * centred
    spread = (1.0 / tl.sqrt(tl.sum(squares, 1) / D + eps))[:, None]
    start = position.to(tl.int64) * D + tl.arange(0, WIDTH)[None, :]
    for c in tl.static_range(N):
        exists = chunk_exists(is_row, c, D, WIDTH)
        scale = chunk_of_vector(gamma + group * D, c, D, HEIGHT, WIDTH)
        normal = (sums[c] - mean) * spread * scale + chunk_of_vector(beta + group * D, c, D, HEIGHT, WIDTH)
        if DROP:
            normal = tl.where(kept[c], normal * grown, 0.0)
        tl.store(y + start + c * WIDTH, normal, mask=exists)
        if HALF:
            tl.store(half + start + c * WIDTH, normal.to(half.dtype.element_ty), mask=exists)
    tl.store(means + position, mean, mask=is_row)
    tl.store(spreads + position, spread, mask=is_row)


@triton.jit(do_not_specialize=["rows"])
def embed_backward(
    first,
    second,
    third,
    keys,
    gamma,
    seed,
    means,
    spreads,
    grad,
    half_grad,
    dz,
    parts,
    rows,
    P,
    D: tl.constexpr,
    N: tl.constexpr,
    WIDTH: tl.constexpr,
    TABLES: tl.constexpr,
    DROP: tl.constexpr,
    ROUNDS: tl.constexpr,
    WIDE: tl.constexpr,
    HALF: tl.constexpr,
    NUM: tl.constexpr,
):
    """The gradient of the sum of NUM positions of one group, one after the other, and sums for γ and β."""
    part, group = tl.program_id(0), tl.program_id(1)
    total = rows * tl.num_programs(1)
    nothing = tl.zeros([1, WIDTH], tl.float32)
    of_scale, of_shift = (nothing,) * N, (nothing,) * N
    if DROP:
        limit, grown = limit_of(P)
    for i in range(NUM):
        local = part * NUM + i + tl.arange(0, 1)
        is_row = (local < rows)[:, None]
        number = (group * rows + local).to(tl.int64)
        position = number[:, None]
        if DROP:
            kept = kept_chunks(seed, number, limit, N, 1, WIDTH, ROUNDS)
        first_row = tl.load(keys + position, mask=is_row, other=0).to(tl.int64)
        second_row, third_row = first_row, first_row
        if TABLES > 1:
            second_row = tl.load(keys + total + position, mask=is_row, other=0).to(tl.int64)
        if TABLES > 2:
            third_row = tl.load(keys + 2 * total + position, mask=is_row, other=0).to(tl.int64)
        mean = tl.load(means + position, mask=is_row, other=0.0)
        spread = tl.load(spreads + position, mask=is_row, other=0.0)
        start = position * D + tl.arange(0, WIDTH)[None, :]
        grads, normals, scaled = (), (), ()
        pull, turn = nothing, nothing
        for c in tl.static_range(N):
            exists = chunk_exists(is_row, c, D, WIDTH)
            z = _chunk_of(first, first_row, exists, c, D, WIDTH)
            if TABLES > 1:
                z += _chunk_of(second, second_row, exists, c, D, WIDTH)
            if TABLES > 2:
                z += _chunk_of(third, third_row, exists, c, D, WIDTH)
            g = gradient_of(grad, half_grad, start + c * WIDTH, exists, WIDE, HALF)
            if DROP:
                g = tl.where(kept[c], g * grown, 0.0)
            grads += (g,)
            normals += (tl.where(exists, (z - mean) * spread, 0.0),)
            scaled += (g * chunk_of_vector(gamma + group * D, c, D, 1, WIDTH),)
            pull += scaled[c]
            turn += scaled[c] * normals[c]
        # One sum of both: the warps of a row wait for each other once.
        pulled, turned = tl.split(tl.sum(tl.join(pull, turn), 1) / D)
        more_scale, more_shift = (), ()
        for c in tl.static_range(N):
            slope = (scaled[c] - pulled[:, None] - normals[c] * turned[:, None]) * spread
            tl.store(dz + start + c * WIDTH, slope, mask=chunk_exists(is_row, c, D, WIDTH))
            more_scale += (of_scale[c] + grads[c] * normals[c],)
            more_shift += (of_shift[c] + grads[c],)
        of_scale, of_shift = more_scale, more_shift
    target = parts + ((group * tl.num_programs(0) + part) * 2).to(tl.int64) * D
    for c in tl.static_range(N):
        column = c * WIDTH + tl.arange(0, WIDTH)[None, :]
        tl.store(target + column, of_scale[c], mask=column < D)
        tl.store(target + D + column, of_shift[c], mask=column < D)
