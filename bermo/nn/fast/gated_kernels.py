"""Kernels of `nn.fast.gated`: gelu(a) ⊙ b and its gradient, by tiles of rows and columns."""

import triton
import triton.language as tl

from bermo.nn.fast.normal_kernels import normal


@triton.jit
def _halves(h, rows, F: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """A tile of a and b in float32, where they are in (rows, 2 F), where in (rows, F), and which exist."""
    row = tl.program_id(0) * HEIGHT + tl.arange(0, HEIGHT)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    exists = (row < rows)[:, None] & (column < F)[None, :]
    row = row.to(tl.int64)[:, None]
    joined, single = row * (2 * F) + column[None, :], row * F + column[None, :]
    a = tl.load(h + joined, mask=exists, other=0.0).to(tl.float32)
    b = tl.load(h + joined + F, mask=exists, other=0.0).to(tl.float32)
    return a, b, joined, single, exists


@triton.jit
def gated_forward(h, out, rows, F: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """gelu(a) b of a tile."""
    a, b, _, single, exists = _halves(h, rows, F, HEIGHT, WIDTH)
    gelu = 0.5 * a * (1.0 + tl.erf(a * 0.7071067811865476))
    tl.store(out + single, (gelu * b).to(out.dtype.element_ty), mask=exists)


@triton.jit
def gated_backward(grad, h, dh, rows, F: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """da and db of a tile, side by side."""
    a, b, joined, single, exists = _halves(h, rows, F, HEIGHT, WIDTH)
    g = tl.load(grad + single, mask=exists, other=0.0).to(tl.float32)
    cumulated, density = normal(a)
    of_a = g * b * (cumulated + a * density)
    of_b = g * a * cumulated
    tl.store(dh + joined, of_a.to(dh.dtype.element_ty), mask=exists)
    tl.store(dh + joined + F, of_b.to(dh.dtype.element_ty), mask=exists)
