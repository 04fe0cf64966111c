"""x Wᵀ + b of linear layers and x W + b of transposed ones (GPT-2's), from the step's copies, for GPUs.

dW may be written directly to the optimiser's buffer. A bias that is given detached gets its gradient from
what follows (`nn.fast.prenorm`). The twins are torch's own linear and addmm.
"""

from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional


def weight_grad(grad: Tensor, x: Tensor, target: Tensor | None, is_transposed: bool = False) -> Tensor:
    """dYᵀ X, or Xᵀ dY of a transposed matrix, written to `target` if there is one."""
    left, right = (x, grad) if is_transposed else (grad, x)
    if target is None:
        return torch.mm(left.t(), right)
    return torch.mm(left.t(), right, out=target.view_as(target))


class Product(torch.autograd.Function):
    """(x, W, b, target, is_transposed) -> x Wᵀ + b, or x W + b; dW is written to `target`."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor | None, is_transposed: bool
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.target, ctx.is_transposed = target, is_transposed
        if not is_transposed:
            return functional.linear(x, weight, bias)
        flat = x.reshape(-1, x.shape[-1])
        out = torch.mm(flat, weight) if bias is None else torch.addmm(bias, flat, weight)
        return out.view(*x.shape[:-1], weight.shape[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        x, weight = ctx.saved_tensors
        flat, of_x, of_weight = grad.reshape(-1, grad.shape[-1]), None, None
        if ctx.needs_input_grad[0]:
            of_x = torch.mm(flat, weight.t() if ctx.is_transposed else weight).view_as(x)
        if ctx.needs_input_grad[1]:
            of_weight = weight_grad(flat, x.reshape(-1, x.shape[-1]), ctx.target, ctx.is_transposed)
        of_bias = flat.sum(0) if ctx.needs_input_grad[2] else None
        return of_x, of_weight, of_bias, None, None


def product(
    x: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor | None = None, is_transposed: bool = False
) -> Tensor:
    """Return x Wᵀ + b, or x W + b of a transposed matrix."""
    return cast(Tensor, Product.apply(x, weight, bias, target, is_transposed))
