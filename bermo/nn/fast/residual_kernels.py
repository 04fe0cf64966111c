"""Kernels of `nn.fast.residual`: LayerNorm(x + dropout(h)), its gradients, and sums of partial sums.

Four rows share one draw of four random numbers.
"""

import triton
import triton.language as tl
from torch import Tensor

# Rounds of Philox: the fewest that pass BigCrush (Salmon et al. 2011).
ROUNDS = 7
# Elements are counted in 32 bits.
LARGEST = 2**31


@triton.jit
def _dropout_factors(seed, counters, P, ROUNDS: tl.constexpr):
    """Factors of four rows, (4, WIDTH), one counter for each column: 0 with chance P, else 1 / (1 − P)."""
    first, second, third, fourth = tl.rand4x(tl.load(seed), counters, ROUNDS)
    row = tl.arange(0, 4)[:, None]
    lower = tl.where(row == 0, first[None, :], second[None, :])
    upper = tl.where(row == 2, third[None, :], fourth[None, :])
    return tl.where(tl.where(row < 2, lower, upper) >= P, 1.0 / (1.0 - P), 0.0)


@triton.jit
def _sum_of(h, x, at, exists, added, kept):
    """x + m ⊙ (h + b) of four rows."""
    z = tl.load(h + at, mask=exists, other=0.0).to(tl.float32)
    return (z + added) * kept + tl.load(x + at, mask=exists, other=0.0).to(tl.float32)


@triton.jit
def _read_at(tokens, row, exists, num_tokens, columns, D: tl.constexpr):
    """Where four rows would stand in (texts, D), and which are the chosen token of their text."""
    text = row // num_tokens
    chosen = tl.load(tokens + text, mask=exists, other=-1)
    return text[:, None] * D + columns[None, :], (chosen == row % num_tokens)[:, None]


@triton.jit
def _gradient_of(grad, half_grad, at, exists, WIDE: tl.constexpr, HALF: tl.constexpr):
    """The gradient of four rows of y, from both of its copies."""
    if WIDE:
        g = tl.load(grad + at, mask=exists, other=0.0).to(tl.float32)
        if HALF:
            g += tl.load(half_grad + at, mask=exists, other=0.0).to(tl.float32)
    elif HALF:
        g = tl.load(half_grad + at, mask=exists, other=0.0).to(tl.float32)
    else:
        g = tl.where(exists, 0.0, 0.0)
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
    WIDTH: tl.constexpr,
    P,
    DROP: tl.constexpr,
    ROUNDS: tl.constexpr,
    HALF: tl.constexpr,
    ADD: tl.constexpr,
    READ: tl.constexpr,
):
    """y, its copy in another dtype, mean and 1/deviation of four rows of one group, all four at once.

    With READ the row of each text's chosen token is written to `read`, too.
    """
    block, group = tl.program_id(0), tl.program_id(1)
    columns = tl.arange(0, WIDTH)
    is_column = columns < D
    scale = tl.load(gamma + group * D + columns, mask=is_column, other=0.0).to(tl.float32)
    shift = tl.load(beta + group * D + columns, mask=is_column, other=0.0).to(tl.float32)
    added, kept = 0.0, 1.0
    if ADD:
        added = tl.load(bias + group * D + columns, mask=is_column, other=0.0).to(tl.float32)[None, :]
    if DROP:
        number = group * tl.num_programs(0) + block
        kept = _dropout_factors(seed, number * D + columns, P, ROUNDS)
    local = block * 4 + tl.arange(0, 4)
    row = (group * rows + local).to(tl.int64)
    exists = is_column[None, :] & (local < rows)[:, None]
    at = row[:, None] * D + columns[None, :]
    z = _sum_of(h, x, at, exists, added, kept)
    # What is added where there is no column must not count.
    z = tl.where(exists, z, 0.0)
    mean = tl.sum(z, 1) / D
    centred = tl.where(exists, z - mean[:, None], 0.0)
    spread = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / D + eps)
    normal = centred * spread[:, None] * scale[None, :] + shift[None, :]
    tl.store(y + at, normal, mask=exists)
    if HALF:
        tl.store(half + at, normal.to(half.dtype.element_ty), mask=exists)
    if READ:
        target, is_read = _read_at(tokens, row, local < rows, num_tokens, columns, D)
        tl.store(read + target, normal, mask=exists & is_read)
    tl.store(means + row, mean, mask=local < rows)
    tl.store(spreads + row, spread, mask=local < rows)


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
    num_blocks,
    num_tokens,
    D: tl.constexpr,
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
    """dh and dx of NUM blocks of four rows of one group, and their sums for γ, β and the bias."""
    part, group = tl.program_id(0), tl.program_id(1)
    columns = tl.arange(0, WIDTH)
    is_column = columns < D
    scale = tl.load(gamma + group * D + columns, mask=is_column, other=0.0).to(tl.float32)
    added = 0.0
    if ADD:
        added = tl.load(bias + group * D + columns, mask=is_column, other=0.0).to(tl.float32)[None, :]
    of_scale = tl.zeros([WIDTH], tl.float32)
    of_shift = tl.zeros([WIDTH], tl.float32)
    of_bias = tl.zeros([WIDTH], tl.float32)
    for i in range(NUM):
        block = part * NUM + i
        if DROP:
            number = group * num_blocks + block
            kept = _dropout_factors(seed, number * D + columns, P, ROUNDS)
        else:
            kept = 1.0
        local = block * 4 + tl.arange(0, 4)
        row = (group * rows + local).to(tl.int64)
        exists = is_column[None, :] & (local < rows)[:, None]
        at = row[:, None] * D + columns[None, :]
        z = _sum_of(h, x, at, exists, added, kept)
        g = _gradient_of(grad, half_grad, at, exists, WIDE, HALF)
        if READ:
            source, is_read = _read_at(tokens, row, local < rows, num_tokens, columns, D)
            g += tl.load(read_grad + source, mask=exists & is_read, other=0.0)
        mean = tl.load(means + row, mask=local < rows, other=0.0)
        spread = tl.load(spreads + row, mask=local < rows, other=0.0)
        normal = tl.where(exists, (z - mean[:, None]) * spread[:, None], 0.0)
        scaled = g * scale[None, :]
        pull, turn = tl.sum(scaled, 1) / D, tl.sum(scaled * normal, 1) / D
        dz = (scaled - pull[:, None] - normal * turn[:, None]) * spread[:, None]
        dz = tl.where(exists, dz, 0.0)
        tl.store(dx + at, dz.to(dx.dtype.element_ty), mask=exists)
        if DROP:
            dz *= kept
        tl.store(dh + at, dz.to(dh.dtype.element_ty), mask=exists)
        of_scale += tl.sum(g * normal, 0)
        of_shift += tl.sum(g, 0)
        of_bias += tl.sum(dz, 0)
    target = parts + ((group * tl.num_programs(0) + part) * 3).to(tl.int64) * D + columns
    tl.store(target, of_scale, mask=is_column)
    tl.store(target + D, of_shift, mask=is_column)
    tl.store(target + 2 * D, of_bias, mask=is_column)


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
    _sum_parts[(num_groups, triton.cdiv(size, 64), len(outputs))](
        parts, *three, num_parts, D=size, KINDS=kinds, HEIGHT=64, WIDTH=64, num_warps=4
    )
