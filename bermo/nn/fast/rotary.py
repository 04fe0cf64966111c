"""Queries, keys and values as one product, with queries and keys rotated (RoPE, Su et al. 2021), for GPUs.

    q' = q ⊙ cos + turn(q) ⊙ sin      turn([q₁, q₂]) = [−q₂, q₁], the halves of a head; k' alike, v as it is
    dq₁ = g₁ cos₁ + g₂ sin₂           dq₂ = g₂ cos₂ − g₁ sin₁

The product's output is rotated where it lies. The backward pass turns the three gradients back, which may lie
apart or side by side, and writes them side by side, as the products behind it read them, in one kernel. The
twin is in plain torch.
"""

from typing import Any

import torch
import triton
from torch import Tensor
from torch.nn import functional

from bermo.nn.fast.product import weight_grad
from bermo.nn.fast.rotary_kernels import rotary_backward, rotary_forward


class RotatedThree(torch.autograd.Function):
    """(x, W, b, target, cos, sin, heads) -> q', k', v, each (B, T, heads, size); dW goes to `target`."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor | None,
        cos: Tensor,
        sin: Tensor,
        heads: int,
    ) -> tuple[Tensor, ...]:
        joined = functional.linear(x, weight, bias)
        size = weight.shape[0] // (3 * heads)
        cos, sin = cos.contiguous(), sin.contiguous()
        ctx.save_for_backward(x, weight, cos, sin)
        ctx.target, ctx.options = target, _options(heads, size)
        num_tokens, num_angles = joined.numel() // weight.shape[0], cos.numel() // size
        rotary_forward[(num_tokens,)](joined, cos, sin, num_angles, **ctx.options)
        return joined.view(*x.shape[:-1], 3, heads, size).unbind(-3)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        x, weight, cos, sin = ctx.saved_tensors
        step, size = grads[0].stride(1), grads[0].shape[-1]
        if any(grad.stride() != (grad.shape[1] * step, step, size, 1) for grad in grads):
            grads, step = tuple(grad.contiguous() for grad in grads), weight.shape[0] // 3
        num_tokens, num_angles = x.numel() // x.shape[-1], cos.numel() // size
        joined = grads[0].new_empty(num_tokens, weight.shape[0])
        rotary_backward[(num_tokens,)](*grads, cos, sin, joined, step, num_angles, **ctx.options)
        dx = torch.mm(joined, weight).view_as(x) if ctx.needs_input_grad[0] else None
        dw = weight_grad(joined, x.reshape(num_tokens, -1), ctx.target)
        db = joined.sum(0) if ctx.needs_input_grad[2] else None
        return dx, dw, db, None, None, None, None


def _options(heads: int, size: int) -> dict[str, int]:
    powers = triton.next_power_of_2(heads), triton.next_power_of_2(size // 2)
    return {"H": heads, "HALF": size // 2, "HEADS": powers[0], "WIDTH": powers[1], "num_warps": 2}


def rotated_three(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    heads: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return rotated queries and keys, and values, (B, T, heads, size), of x Wᵀ + b.

    Cosines and sines are (1, T, size), or (B, T, size) where each text has positions of its own.
    """
    q, k, v = RotatedThree.apply(x, weight, bias, target, cos, sin, heads)
    return q, k, v


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x ⊙ cos + turn(x) ⊙ sin of (B, T, heads, size), in float32."""
    wide = x.float()
    first, second = wide.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return (wide * cos[:, :, None] + turned * sin[:, :, None]).to(x.dtype)


def rotated_three_twin(
    x: Tensor, weight: Tensor, bias: Tensor | None, cos: Tensor, sin: Tensor, heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """`rotated_three` in plain torch."""
    q, k, v = functional.linear(x, weight, bias).view(*x.shape[:-1], 3, heads, -1).unbind(-3)
    return rotate(q, cos, sin), rotate(k, cos, sin), v
