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
    """Four factors for each counter: 0 with chance P, else 1 / (1 − P)."""
    first, second, third, fourth = tl.rand4x(tl.load(seed), counters, ROUNDS)
    grown = 1.0 / (1.0 - P)
    return (
        tl.where(first >= P, grown, 0.0),
        tl.where(second >= P, grown, 0.0),
        tl.where(third >= P, grown, 0.0),
        tl.where(fourth >= P, grown, 0.0),
    )


@triton.jit
def _sum_of(h, x, row, columns, exists, added, kept, D: tl.constexpr):
    """x + m ⊙ (h + b) of one row."""
    z = tl.load(h + row * D + columns, mask=exists, other=0.0).to(tl.float32)
    return (z + added) * kept + tl.load(x + row * D + columns, mask=exists, other=0.0).to(tl.float32)


@triton.jit
def _normal_of(z, means, spreads, row, exists, is_row):
    """A row's normalised values, and 1/deviation."""
    mean = tl.load(means + row, mask=is_row, other=0.0)
    spread = tl.load(spreads + row, mask=is_row, other=0.0)
    return tl.where(exists, (z - mean) * spread, 0.0), spread


@triton.jit
def _gradient_of(
    grad, half_grad, row, columns, exists, D: tl.constexpr, WIDE: tl.constexpr, HALF: tl.constexpr
):
    """The gradient of one row of y, from both of its copies."""
    if WIDE:
        g = tl.load(grad + row * D + columns, mask=exists, other=0.0).to(tl.float32)
        if HALF:
            g += tl.load(half_grad + row * D + columns, mask=exists, other=0.0).to(tl.float32)
    else:
        g = tl.load(half_grad + row * D + columns, mask=exists, other=0.0).to(tl.float32)
    return g


@triton.jit
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
    rows,
    eps,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    P,
    DROP: tl.constexpr,
    ROUNDS: tl.constexpr,
    HALF: tl.constexpr,
    ADD: tl.constexpr,
):
    """y, its copy in another dtype, mean and 1/deviation of four rows of one group."""
    block, group = tl.program_id(0), tl.program_id(1)
    columns = tl.arange(0, WIDTH)
    is_column = columns < D
    scale = tl.load(gamma + group * D + columns, mask=is_column, other=0.0).to(tl.float32)
    shift = tl.load(beta + group * D + columns, mask=is_column, other=0.0).to(tl.float32)
    if ADD:
        added = tl.load(bias + group * D + columns, mask=is_column, other=0.0).to(tl.float32)
    if DROP:
        number = group * tl.num_programs(0) + block
        first, second, third, fourth = _dropout_factors(seed, number * D + columns, P, ROUNDS)
    else:
        first, second, third, fourth = 1.0, 1.0, 1.0, 1.0
    if not ADD:
        added = 0.0
    # All four are read before one is written: no load waits for a store.
    local = block * 4
    row = (group * rows + local).to(tl.int64)
    z0 = _sum_of(h, x, row, columns, is_column & (local < rows), added, first, D)
    z1 = _sum_of(h, x, row + 1, columns, is_column & (local + 1 < rows), added, second, D)
    z2 = _sum_of(h, x, row + 2, columns, is_column & (local + 2 < rows), added, third, D)
    z3 = _sum_of(h, x, row + 3, columns, is_column & (local + 3 < rows), added, fourth, D)
    for k in tl.static_range(4):
        if k == 0:
            z = z0
        elif k == 1:
            z = z1
        elif k == 2:
            z = z2
        else:
            z = z3
        exists = is_column & (local + k < rows)
        mean = tl.sum(z) / D
        centred = tl.where(is_column, z - mean, 0.0)
        spread = 1.0 / tl.sqrt(tl.sum(centred * centred) / D + eps)
        normal = centred * spread * scale + shift
        tl.store(y + (row + k) * D + columns, normal, mask=exists)
        if HALF:
            tl.store(half + (row + k) * D + columns, normal.to(half.dtype.element_ty), mask=exists)
        tl.store(means + row + k, mean, mask=local + k < rows)
        tl.store(spreads + row + k, spread, mask=local + k < rows)


@triton.jit
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
    dh,
    dx,
    parts,
    rows,
    num_blocks,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    P,
    DROP: tl.constexpr,
    ROUNDS: tl.constexpr,
    WIDE: tl.constexpr,
    HALF: tl.constexpr,
    NUM: tl.constexpr,
    ADD: tl.constexpr,
):
    """dh and dx of NUM blocks of four rows of one group, and their sums for γ, β and the bias."""
    part, group = tl.program_id(0), tl.program_id(1)
    columns = tl.arange(0, WIDTH)
    is_column = columns < D
    scale = tl.load(gamma + group * D + columns, mask=is_column, other=0.0).to(tl.float32)
    if ADD:
        added = tl.load(bias + group * D + columns, mask=is_column, other=0.0).to(tl.float32)
    of_scale = tl.zeros([WIDTH], tl.float32)
    of_shift = tl.zeros([WIDTH], tl.float32)
    of_bias = tl.zeros([WIDTH], tl.float32)
    if not ADD:
        added = 0.0
    for i in range(NUM):
        block = part * NUM + i
        if DROP:
            number = group * num_blocks + block
            first, second, third, fourth = _dropout_factors(seed, number * D + columns, P, ROUNDS)
        else:
            first, second, third, fourth = 1.0, 1.0, 1.0, 1.0
        # All four are read before one is written: no load waits for a store.
        local = block * 4
        row = (group * rows + local).to(tl.int64)
        e0, e1 = is_column & (local < rows), is_column & (local + 1 < rows)
        e2, e3 = is_column & (local + 2 < rows), is_column & (local + 3 < rows)
        z0 = _sum_of(h, x, row, columns, e0, added, first, D)
        z1 = _sum_of(h, x, row + 1, columns, e1, added, second, D)
        z2 = _sum_of(h, x, row + 2, columns, e2, added, third, D)
        z3 = _sum_of(h, x, row + 3, columns, e3, added, fourth, D)
        g0 = _gradient_of(grad, half_grad, row, columns, e0, D, WIDE, HALF)
        g1 = _gradient_of(grad, half_grad, row + 1, columns, e1, D, WIDE, HALF)
        g2 = _gradient_of(grad, half_grad, row + 2, columns, e2, D, WIDE, HALF)
        g3 = _gradient_of(grad, half_grad, row + 3, columns, e3, D, WIDE, HALF)
        n0, s0 = _normal_of(z0, means, spreads, row, e0, local < rows)
        n1, s1 = _normal_of(z1, means, spreads, row + 1, e1, local + 1 < rows)
        n2, s2 = _normal_of(z2, means, spreads, row + 2, e2, local + 2 < rows)
        n3, s3 = _normal_of(z3, means, spreads, row + 3, e3, local + 3 < rows)
        for k in tl.static_range(4):
            if k == 0:
                g, normal, spread, exists, kept = g0, n0, s0, e0, first
            elif k == 1:
                g, normal, spread, exists, kept = g1, n1, s1, e1, second
            elif k == 2:
                g, normal, spread, exists, kept = g2, n2, s2, e2, third
            else:
                g, normal, spread, exists, kept = g3, n3, s3, e3, fourth
            at = (row + k) * D + columns
            scaled = g * scale
            dz = (scaled - tl.sum(scaled) / D - normal * (tl.sum(scaled * normal) / D)) * spread
            dz = tl.where(exists, dz, 0.0)
            tl.store(dx + at, dz.to(dx.dtype.element_ty), mask=exists)
            if DROP:
                dz *= kept
            tl.store(dh + at, dz.to(dh.dtype.element_ty), mask=exists)
            of_scale += g * normal
            of_shift += g
            of_bias += dz
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
