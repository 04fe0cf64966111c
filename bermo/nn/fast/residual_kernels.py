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
    for k in tl.static_range(4):
        local = block * 4 + k
        exists = is_column & (local < rows)
        row = (group * rows + local).to(tl.int64)
        z = tl.load(h + row * D + columns, mask=exists, other=0.0).to(tl.float32)
        if ADD:
            z += added
        if DROP:
            if k == 0:
                z *= first
            elif k == 1:
                z *= second
            elif k == 2:
                z *= third
            else:
                z *= fourth
        z += tl.load(x + row * D + columns, mask=exists, other=0.0).to(tl.float32)
        mean = tl.sum(z) / D
        centred = tl.where(is_column, z - mean, 0.0)
        spread = 1.0 / tl.sqrt(tl.sum(centred * centred) / D + eps)
        normal = centred * spread * scale + shift
        tl.store(y + row * D + columns, normal, mask=exists)
        if HALF:
            tl.store(half + row * D + columns, normal.to(half.dtype.element_ty), mask=exists)
        tl.store(means + row, mean, mask=local < rows)
        tl.store(spreads + row, spread, mask=local < rows)


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
    for i in range(NUM):
        block = part * NUM + i
        if DROP:
            number = group * num_blocks + block
            first, second, third, fourth = _dropout_factors(seed, number * D + columns, P, ROUNDS)
        for k in tl.static_range(4):
            local = block * 4 + k
            exists = is_column & (local < rows)
            row = (group * rows + local).to(tl.int64)
            z = tl.load(h + row * D + columns, mask=exists, other=0.0).to(tl.float32)
            if ADD:
                z += added
            if DROP:
                if k == 0:
                    kept = first
                elif k == 1:
                    kept = second
                elif k == 2:
                    kept = third
                else:
                    kept = fourth
                z *= kept
            z += tl.load(x + row * D + columns, mask=exists, other=0.0).to(tl.float32)
            mean = tl.load(means + row, mask=local < rows, other=0.0)
            spread = tl.load(spreads + row, mask=local < rows, other=0.0)
            normal = tl.where(exists, (z - mean) * spread, 0.0)
            g = tl.zeros([WIDTH], tl.float32)
            if WIDE:
                g += tl.load(grad + row * D + columns, mask=exists, other=0.0).to(tl.float32)
            if HALF:
                g += tl.load(half_grad + row * D + columns, mask=exists, other=0.0).to(tl.float32)
            scaled = g * scale
            dz = (scaled - tl.sum(scaled) / D - normal * (tl.sum(scaled * normal) / D)) * spread
            dz = tl.where(exists, dz, 0.0)
            tl.store(dx + row * D + columns, dz.to(dx.dtype.element_ty), mask=exists)
            if DROP:
                dz *= kept
            tl.store(dh + row * D + columns, dz.to(dh.dtype.element_ty), mask=exists)
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
