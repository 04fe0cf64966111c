"""gelu(a) ⊙ b of one joined projection h = [a, b], one kernel each way, for GPUs; and its twin in torch.

    da = g ⊙ b ⊙ (Φ(a) + a φ(a))      db = g ⊙ a Φ(a)

The gradient is written joined, as the products behind it read it. Nothing but h is kept.
"""

from typing import Any, cast

import torch
import triton
from torch import Tensor
from torch.nn import functional

from bermo.nn.fast.gated_kernels import gated_backward, gated_forward

# Columns and rows of a tile, one program each: a thread reads 16 bytes of each half.
HEIGHT, WIDTH = 4, 512


class GatedGelu(torch.autograd.Function):
    """(…, 2 F) -> (…, F)."""

    @staticmethod
    def forward(ctx: Any, h: Tensor) -> Tensor:
        h = h.contiguous()
        ctx.save_for_backward(h)
        out = h.new_empty(*h.shape[:-1], h.shape[-1] // 2)
        gated_forward[_grid(out)](h, out, *_sizes(out), HEIGHT=HEIGHT, WIDTH=WIDTH, num_warps=8)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (h,) = ctx.saved_tensors
        grad, dh = grad.contiguous(), torch.empty_like(h)
        gated_backward[_grid(grad)](grad, h, dh, *_sizes(grad), HEIGHT=HEIGHT, WIDTH=WIDTH, num_warps=8)
        return dh


def _sizes(out: Tensor) -> tuple[int, int]:
    return out.numel() // out.shape[-1], out.shape[-1]


def _grid(out: Tensor) -> tuple[int, int]:
    rows, size = _sizes(out)
    return triton.cdiv(rows, HEIGHT), triton.cdiv(size, WIDTH)


def gated_gelu(h: Tensor) -> Tensor:
    """gelu(a) ⊙ b, where h holds a and b side by side."""
    return cast(Tensor, GatedGelu.apply(h))


def gated_gelu_twin(h: Tensor) -> Tensor:
    """`gated_gelu` in plain torch."""
    a, b = h.chunk(2, dim=-1)
    return functional.gelu(a) * b
