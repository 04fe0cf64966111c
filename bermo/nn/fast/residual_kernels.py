"""Kernels of `nn.fast.residual`: LayerNorm(x + dropout(h)), its gradients, and sums of partial sums.

A row is N chunks of WIDTH columns, four of them a thread: a thread reads and writes 16 bytes in float32, and
nothing goes from thread to thread but the sums of a row.
"""

import triton
import triton.language as tl
from torch import Tensor

from bermo.nn.fast.dropout_kernels import kept_chunks, limit_of


@triton.jit
def chunk_exists(is_row, c: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr):
    """Which elements of chunk c exist."""
    exists = is_row
    if (c + 1) * WIDTH > D:
        exists = is_row & (c * WIDTH + tl.arange(0, WIDTH) < D)[None, :]
    return exists


@triton.jit
def chunk_of_vector(vector, c: tl.constexpr, D: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """Chunk c of γ, β or a bias for each row: a thread reads what it needs, and gets nothing from others."""
    column = tl.broadcast_to((c * WIDTH + tl.arange(0, WIDTH))[None, :], (HEIGHT, WIDTH))
    if (c + 1) * WIDTH > D:
        values = tl.load(vector + column, mask=column < D, other=0.0)
    else:
        values = tl.load(vector + column)
    return values.to(tl.float32)


@triton.jit
def gradient_of(grad, half_grad, at, exists, WIDE: tl.constexpr, HALF: tl.constexpr):
    """The gradient of some elements of y, from both of its copies."""
    if WIDE:
        g = tl.load(grad + at, mask=exists, other=0.0).to(tl.float32)
        if HALF:
            g += tl.load(half_grad + at, mask=exists, other=0.0).to(tl.float32)
    elif HALF:
        g = tl.load(half_grad + at, mask=exists, other=0.0).to(tl.float32)
    else:
        g = tl.zeros(at.shape, tl.float32)
    return g


# The number of tokens varies from batch to batch.
@triton.jit(do_not_specialize=["num_tokens"])
def residual_forward(
    h,
    x,
    gamma,
    beta,
    bias,
    seed,
    y,
    half,
    means,
    spreads,
    tokens,
    read,
    rows,
    num_tokens,
    eps,
    D: tl.constexpr,
    N: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    P,
    DROP: tl.constexpr,
    ROUNDS: tl.constexpr,
    HALF: tl.constexpr,
    ADD: tl.constexpr,
    READ: tl.constexpr,
):
    """y, its copy in another dtype, mean and 1/deviation of HEIGHT rows of one group.

    With READ the row of each text's chosen token is written to `read`, too.
    """
    group = tl.program_id(1)
    local = tl.program_id(0) * HEIGHT + tl.arange(0, HEIGHT)
    row = (group * rows + local).to(tl.int64)
    is_row = (local < rows)[:, None]
    if DROP:
        limit, grown = limit_of(P)
        kept = kept_chunks(seed, row, limit, N, HEIGHT, WIDTH, ROUNDS)
    start = row[:, None] * D + tl.arange(0, WIDTH)[None, :]
    sums = ()
    total = tl.zeros([HEIGHT, WIDTH], tl.float32)
    for c in tl.static_range(N):
        exists = chunk_exists(is_row, c, D, WIDTH)
        z = tl.load(h + start + c * WIDTH, mask=exists, other=0.0).to(tl.float32)
        if ADD:
            z += chunk_of_vector(bias + group * D, c, D, HEIGHT, WIDTH)
        if DROP:
            z = tl.where(kept[c], z * grown, 0.0)
        z += tl.load(x + start + c * WIDTH, mask=exists, other=0.0).to(tl.float32)
        sums += (z,)
        total += z
    mean = (tl.sum(total, 1) / D)[:, None]
    squares = tl.zeros([HEIGHT, WIDTH], tl.float32)
    for c in tl.static_range(N):
        # Where there is no column nothing may count.
        centred = tl.where(chunk_exists(is_row, c, D, WIDTH), sums[c] - mean, 0.0)
        squares += centred * centred
    spread = (1.0 / tl.sqrt(tl.sum(squares, 1) / D + eps))[:, None]
    if READ:
        text = row // num_tokens
        chosen = tl.load(tokens + text, mask=local < rows, other=-1) == row % num_tokens
        target = text[:, None] * D + tl.arange(0, WIDTH)[None, :]
    for c in tl.static_range(N):
        exists = chunk_exists(is_row, c, D, WIDTH)
        scale = chunk_of_vector(gamma + group * D, c, D, HEIGHT, WIDTH)
        normal = (sums[c] - mean) * spread * scale + chunk_of_vector(beta + group * D, c, D, HEIGHT, WIDTH)
        tl.store(y + start + c * WIDTH, normal, mask=exists)
        if HALF:
            tl.store(half + start + c * WIDTH, normal.to(half.dtype.element_ty), mask=exists)
        if READ:
            tl.store(read + target + c * WIDTH, normal, mask=exists & chosen[:, None])
    tl.store(means + row[:, None], mean, mask=is_row)
    tl.store(spreads + row[:, None], spread, mask=is_row)


@triton.jit(do_not_specialize=["num_tokens"])
def residual_backward(
    h,
    x,
    gamma,
    bias,
    seed,
    means,
    spreads,
    grad,
    half_grad,
    tokens,
    read_grad,
    dh,
    dx,
    parts,
    rows,
    num_tokens,
    D: tl.constexpr,
    N: tl.constexpr,
    WIDTH: tl.constexpr,
    P,
    DROP: tl.constexpr,
    ROUNDS: tl.constexpr,
    WIDE: tl.constexpr,
    HALF: tl.constexpr,
    NUM: tl.constexpr,
    ADD: tl.constexpr,
    READ: tl.constexpr,
):
    """dh and dx of NUM rows of one group, one after the other, and their sums for γ, β and the bias."""
    part, group = tl.program_id(0), tl.program_id(1)
    nothing = tl.zeros([1, WIDTH], tl.float32)
    of_scale, of_shift, of_bias = (nothing,) * N, (nothing,) * N, (nothing,) * N
    if DROP:
        limit, grown = limit_of(P)
    for i in range(NUM):
        local = part * NUM + i + tl.arange(0, 1)
        row = (group * rows + local).to(tl.int64)
        is_row = (local < rows)[:, None]
        if DROP:
            kept = kept_chunks(seed, row, limit, N, 1, WIDTH, ROUNDS)
        if READ:
            text = row // num_tokens
            chosen = tl.load(tokens + text, mask=local < rows, other=-1) == row % num_tokens
            source = text[:, None] * D + tl.arange(0, WIDTH)[None, :]
        start = row[:, None] * D + tl.arange(0, WIDTH)[None, :]
        mean = tl.load(means + row[:, None], mask=is_row, other=0.0)
        spread = tl.load(spreads + row[:, None], mask=is_row, other=0.0)
        sums, grads = (), ()
        # All is read before anything is written: no load waits for a store.
        for c in tl.static_range(N):
            exists, at = chunk_exists(is_row, c, D, WIDTH), start + c * WIDTH
            z = tl.load(h + at, mask=exists, other=0.0).to(tl.float32)
            if ADD:
                z += chunk_of_vector(bias + group * D, c, D, 1, WIDTH)
            if DROP:
                z = tl.where(kept[c], z * grown, 0.0)
            sums += (z + tl.load(x + at, mask=exists, other=0.0).to(tl.float32),)
            g = gradient_of(grad, half_grad, at, exists, WIDE, HALF)
            if READ:
                of_read = exists & chosen[:, None]
                g += tl.load(read_grad + source + c * WIDTH, mask=of_read, other=0.0).to(tl.float32)
            grads += (g,)
        pull, turn = nothing, nothing
        normals, scaled = (), ()
        for c in tl.static_range(N):
            normals += (tl.where(chunk_exists(is_row, c, D, WIDTH), (sums[c] - mean) * spread, 0.0),)
            scaled += (grads[c] * chunk_of_vector(gamma + group * D, c, D, 1, WIDTH),)
            pull += scaled[c]
            turn += scaled[c] * normals[c]
        # One sum of both: the warps of a row wait for each other once.
        pulled, turned = tl.split(tl.sum(tl.join(pull, turn), 1) / D)
        more_scale, more_shift, more_bias = (), (), ()
        for c in tl.static_range(N):
            exists, at = chunk_exists(is_row, c, D, WIDTH), start + c * WIDTH
            dz = (scaled[c] - pulled[:, None] - normals[c] * turned[:, None]) * spread
            tl.store(dx + at, dz.to(dx.dtype.element_ty), mask=exists)
            dz = tl.where(exists, dz, 0.0)
            if DROP:
                dz = tl.where(kept[c], dz * grown, 0.0)
            tl.store(dh + at, dz.to(dh.dtype.element_ty), mask=exists)
            more_scale += (of_scale[c] + grads[c] * normals[c],)
            more_shift += (of_shift[c] + grads[c],)
            more_bias += (of_bias[c] + dz,)
        of_scale, of_shift, of_bias = more_scale, more_shift, more_bias
    target = parts + ((group * tl.num_programs(0) + part) * 3).to(tl.int64) * D
    for c in tl.static_range(N):
        column = c * WIDTH + tl.arange(0, WIDTH)[None, :]
        tl.store(target + column, of_scale[c], mask=column < D)
        tl.store(target + D + column, of_shift[c], mask=column < D)
        tl.store(target + 2 * D + column, of_bias[c], mask=column < D)


@triton.jit(do_not_specialize=["num_parts"])
def _sum_parts(
    parts,
    first,
    second,
    third,
    num_parts,
    D: tl.constexpr,
    KINDS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Sum (G, parts, KINDS, D) over the parts; each wanted kind goes to a (G, D) of its own."""
    group, kind = tl.program_id(0), tl.program_id(2)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    total = tl.zeros([HEIGHT, WIDTH], tl.float32)
    start = 0
    # Triton's interpreter knows no range over a number that was given at run time.
    while start < num_parts:
        part = start + tl.arange(0, HEIGHT)
        row = ((group * num_parts + part) * KINDS + kind).to(tl.int64)
        exists = (part < num_parts)[:, None] & (columns < D)[None, :]
        total += tl.load(parts + row[:, None] * D + columns[None, :], mask=exists, other=0.0)
        start += HEIGHT
    added = tl.sum(total, 0)
    target = group * D + columns
    is_column = columns < D
    if kind == 0:
        tl.store(first + target, added.to(first.dtype.element_ty), mask=is_column)
    elif kind == 1:
        tl.store(second + target, added.to(second.dtype.element_ty), mask=is_column)
    else:
        tl.store(third + target, added.to(third.dtype.element_ty), mask=is_column)


def sum_parts(parts: Tensor, outputs: list[Tensor]) -> None:
    """Sum (G, parts, kinds, D) over the parts into `outputs`, a (G, D) for each of the first kinds."""
    num_groups, num_parts, kinds, size = parts.shape
    three = [outputs[min(index, len(outputs) - 1)] for index in range(3)]
    # Of few parts a warp sums columns of its own; a tile of 128 rows would be nearly empty.
    height, width, num_warps = (8, 256, 1) if num_parts <= 8 else (128, 64, 8)
    _sum_parts[(num_groups, triton.cdiv(size, width), len(outputs))](
        parts, *three, num_parts, D=size, KINDS=kinds, HEIGHT=height, WIDTH=width, num_warps=num_warps
    )
