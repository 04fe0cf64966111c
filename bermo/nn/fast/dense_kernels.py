"""Kernels of `nn.fast.dense`: the gelu and its gradient, and three gradients side by side, with their sums
over the rows of some tiles.

A warp has 256 columns, 16 bytes of bfloat16 a thread, so that each thread adds up columns of its own: a sum
between warps took longer than everything else.
"""

import triton
import triton.language as tl

from bermo.nn.fast.dropout_kernels import limit_of
from bermo.nn.fast.normal_kernels import normal


@triton.jit
def _tile(block, rows, D: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """A tile of a group's (rows, D): its columns, its indices in the whole tensor, and which exist."""
    row = block * HEIGHT + tl.arange(0, HEIGHT)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    exists = (row < rows)[:, None] & (column < D)[None, :]
    whole = (tl.program_id(2) * rows + row).to(tl.int64)
    return column, whole[:, None] * D + column[None, :], exists


@triton.jit
def _kept(kept, block, rows, P, D: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """Dropout's factors of a tile; a number of 32 bits holds 32 rows of a column."""
    row = block * HEIGHT + tl.arange(0, HEIGHT)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    above = (tl.program_id(2) * tl.cdiv(rows, 32) + block * HEIGHT // 32).to(tl.int64)
    bits = tl.load(kept + above * D + column, mask=column < D, other=0)
    _, grown = limit_of(P)
    return tl.where((bits[None, :] << (31 - (row & 31))[:, None]) < 0, grown, 0.0)


@triton.jit
def gelu_forward(
    h,
    bias,
    kept,
    out,
    rows,
    D: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    ADD: tl.constexpr,
    P,
    DROP: tl.constexpr,
):
    """m ⊙ gelu(h + b), with a bias for each group of rows, or gelu(h)."""
    block = tl.program_id(0)
    column, at, exists = _tile(block, rows, D, HEIGHT, WIDTH)
    value = tl.load(h + at, mask=exists, other=0.0).to(tl.float32)
    if ADD:
        value += tl.load(bias + tl.program_id(2) * D + column, mask=column < D, other=0.0).to(tl.float32)
    cumulated, _ = normal(value)
    gelu = value * cumulated
    if DROP:
        gelu *= _kept(kept, block, rows, P, D, HEIGHT, WIDTH)
    tl.store(out + at, gelu.to(out.dtype.element_ty), mask=exists)


@triton.jit
def gelu_backward(
    grad,
    h,
    bias,
    kept,
    dh,
    parts,
    rows,
    D: tl.constexpr,
    NUM: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    ADD: tl.constexpr,
    P,
    DROP: tl.constexpr,
):
    """dh = m ⊙ g (Φ(h) + h φ(h)) of NUM tiles below each other, and its sums over their rows."""
    part, group = tl.program_id(0), tl.program_id(2)
    total = tl.zeros([1, WIDTH], tl.float32)
    for i in range(NUM):
        block = part * NUM + i
        column, at, exists = _tile(block, rows, D, HEIGHT, WIDTH)
        value = tl.load(h + at, mask=exists, other=0.0).to(tl.float32)
        g = tl.load(grad + at, mask=exists, other=0.0).to(tl.float32)
        if ADD:
            value += tl.load(bias + group * D + column, mask=column < D, other=0.0).to(tl.float32)
        if DROP:
            g *= _kept(kept, block, rows, P, D, HEIGHT, WIDTH)
        cumulated, density = normal(value)
        of_h = g * (cumulated + value * density)
        tl.store(dh + at, of_h.to(dh.dtype.element_ty), mask=exists)
        total += tl.sum(of_h, 0, keep_dims=True)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)[None, :]
    target = parts + (group * tl.num_programs(0) + part).to(tl.int64) * D
    tl.store(target + column, total, mask=column < D)


@triton.jit
def join_three(
    first,
    second,
    third,
    joined,
    parts,
    rows,
    D: tl.constexpr,
    BLOCKS: tl.constexpr,
    NUM: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Write NUM tiles of each of three (rows, D) side by side, and the sums over their rows."""
    part, source = tl.program_id(0), tl.program_id(1) // BLOCKS
    column = (tl.program_id(1) % BLOCKS) * WIDTH + tl.arange(0, WIDTH)[None, :]
    across = source * D + column
    given = first
    if source == 1:
        given = second
    elif source == 2:
        given = third
    total = tl.zeros([1, WIDTH], tl.float32)
    for i in range(NUM):
        row = ((part * NUM + i) * HEIGHT + tl.arange(0, HEIGHT)).to(tl.int64)[:, None]
        exists = (row < rows) & (column < D)
        value = tl.load(given + row * D + column, mask=exists, other=0.0)
        tl.store(joined + row * (3 * D) + across, value, mask=exists)
        total += tl.sum(value.to(tl.float32), 0, keep_dims=True)
    tl.store(parts + part.to(tl.int64) * (3 * D) + across, total, mask=column < D)
