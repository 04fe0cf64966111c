"""Kernels of `nn.fast.prenorm`: z = x + dropout(h) with its layer norm, and their gradients.

Four rows share one draw of four random numbers, as in `residual_kernels`.
"""

import triton
import triton.language as tl


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
def _row_of(tensor, row, columns, exists, D: tl.constexpr):
    """One row in float32."""
    return tl.load(tensor + row * D + columns, mask=exists, other=0.0).to(tl.float32)


@triton.jit
def prenorm_forward(
    h,
    x,
    gamma,
    beta,
    seed,
    z,
    y,
    means,
    spreads,
    rows,
    eps,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    P,
    DROP: tl.constexpr,
    ROUNDS: tl.constexpr,
    SHIFT: tl.constexpr,
):
    """z, y, mean and 1/deviation of four rows."""
    block = tl.program_id(0)
    columns = tl.arange(0, WIDTH)
    is_column = columns < D
    scale = tl.load(gamma + columns, mask=is_column, other=0.0).to(tl.float32)
    shift = 0.0
    if SHIFT:
        shift = tl.load(beta + columns, mask=is_column, other=0.0).to(tl.float32)
    if DROP:
        first, second, third, fourth = _dropout_factors(seed, block * D + columns, P, ROUNDS)
    else:
        first, second, third, fourth = 1.0, 1.0, 1.0, 1.0
    # All four are read before one is written: no load waits for a store.
    local = block * 4
    row = local.to(tl.int64)
    z0 = _sum_of(h, x, row, columns, is_column & (local < rows), 0.0, first, D)
    z1 = _sum_of(h, x, row + 1, columns, is_column & (local + 1 < rows), 0.0, second, D)
    z2 = _sum_of(h, x, row + 2, columns, is_column & (local + 2 < rows), 0.0, third, D)
    z3 = _sum_of(h, x, row + 3, columns, is_column & (local + 3 < rows), 0.0, fourth, D)
    for k in tl.static_range(4):
        if k == 0:
            total = z0
        elif k == 1:
            total = z1
        elif k == 2:
            total = z2
        else:
            total = z3
        exists = is_column & (local + k < rows)
        at = (row + k) * D + columns
        mean = tl.sum(total) / D
        centred = tl.where(is_column, total - mean, 0.0)
        spread = 1.0 / tl.sqrt(tl.sum(centred * centred) / D + eps)
        normal = centred * spread * scale + shift
        tl.store(z + at, total, mask=exists)
        tl.store(y + at, normal.to(y.dtype.element_ty), mask=exists)
        tl.store(means + row + k, mean, mask=local + k < rows)
        tl.store(spreads + row + k, spread, mask=local + k < rows)


@triton.jit
def prenorm_backward(
    z,
    gamma,
    seed,
    means,
    spreads,
    z_grad,
    y_grad,
    dh,
    dx,
    parts,
    rows,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    P,
    DROP: tl.constexpr,
    ROUNDS: tl.constexpr,
    OF_Z: tl.constexpr,
    NUM: tl.constexpr,
    KINDS: tl.constexpr,
):
    """dh and dx of NUM blocks of four rows, and their sums for γ and, with KINDS = 3, for β and the bias.

    Without OF_Z nothing but y is read further on, and z has no gradient of its own.
    """
    part = tl.program_id(0)
    columns = tl.arange(0, WIDTH)
    is_column = columns < D
    scale = tl.load(gamma + columns, mask=is_column, other=0.0).to(tl.float32)
    of_scale = tl.zeros([WIDTH], tl.float32)
    of_shift = tl.zeros([WIDTH], tl.float32)
    of_bias = tl.zeros([WIDTH], tl.float32)
    for i in range(NUM):
        block = part * NUM + i
        if DROP:
            first, second, third, fourth = _dropout_factors(seed, block * D + columns, P, ROUNDS)
        else:
            first, second, third, fourth = 1.0, 1.0, 1.0, 1.0
        # All four are read before one is written: no load waits for a store.
        local = block * 4
        row = local.to(tl.int64)
        e0, e1 = is_column & (local < rows), is_column & (local + 1 < rows)
        e2, e3 = is_column & (local + 2 < rows), is_column & (local + 3 < rows)
        z0, z1 = _row_of(z, row, columns, e0, D), _row_of(z, row + 1, columns, e1, D)
        z2, z3 = _row_of(z, row + 2, columns, e2, D), _row_of(z, row + 3, columns, e3, D)
        g0, g1 = _row_of(y_grad, row, columns, e0, D), _row_of(y_grad, row + 1, columns, e1, D)
        g2, g3 = _row_of(y_grad, row + 2, columns, e2, D), _row_of(y_grad, row + 3, columns, e3, D)
        if OF_Z:
            a0, a1 = _row_of(z_grad, row, columns, e0, D), _row_of(z_grad, row + 1, columns, e1, D)
            a2, a3 = _row_of(z_grad, row + 2, columns, e2, D), _row_of(z_grad, row + 3, columns, e3, D)
        else:
            a0, a1, a2, a3 = 0.0, 0.0, 0.0, 0.0
        n0, s0 = _normal_of(z0, means, spreads, row, e0, local < rows)
        n1, s1 = _normal_of(z1, means, spreads, row + 1, e1, local + 1 < rows)
        n2, s2 = _normal_of(z2, means, spreads, row + 2, e2, local + 2 < rows)
        n3, s3 = _normal_of(z3, means, spreads, row + 3, e3, local + 3 < rows)
        for k in tl.static_range(4):
            if k == 0:
                g, added, normal, spread, exists, kept = g0, a0, n0, s0, e0, first
            elif k == 1:
                g, added, normal, spread, exists, kept = g1, a1, n1, s1, e1, second
            elif k == 2:
                g, added, normal, spread, exists, kept = g2, a2, n2, s2, e2, third
            else:
                g, added, normal, spread, exists, kept = g3, a3, n3, s3, e3, fourth
            at = (row + k) * D + columns
            scaled = g * scale
            dz = (scaled - tl.sum(scaled) / D - normal * (tl.sum(scaled * normal) / D)) * spread + added
            dz = tl.where(exists, dz, 0.0)
            tl.store(dx + at, dz.to(dx.dtype.element_ty), mask=exists)
            if DROP:
                dz *= kept
            tl.store(dh + at, dz.to(dh.dtype.element_ty), mask=exists)
            of_scale += g * normal
            of_shift += g
            of_bias += dz
    target = parts + (part * KINDS).to(tl.int64) * D + columns
    tl.store(target, of_scale, mask=is_column)
    if KINDS == 3:
        tl.store(target + D, of_shift, mask=is_column)
        tl.store(target + 2 * D, of_bias, mask=is_column)
