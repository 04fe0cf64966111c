"""z = x + dropout(h) and y = LayerNorm(z) in one pass each way, for GPUs, and its twin in plain torch.

    z = x + m ⊙ h / (1 − p)          m from Philox, by a seed on the device: drawn again in the backward pass
    y = γ (z − μ) ρ + β              ρ = 1 / √(σ² + ε)
    dz = a + ρ (g γ − mean(g γ) − ẑ mean(g γ ẑ))      a, g: the gradients of z and y
    dx = dz      dh = m ⊙ dz / (1 − p)
    dγ = Σ g ẑ     dβ = Σ g     and Σ dh, which is the gradient of the bias that was added to make h

Layers that normalise what they read (pre-norm) hand z on to the next sum, and y to products: so z is float32
and y of the products' dtype, and no cast is launched. Nothing but z and two numbers a row is kept.
"""

from typing import Any

import torch
import triton
from torch import Tensor
from torch.nn import functional

from bermo.nn.fast.dropout_kernels import ROUNDS
from bermo.nn.fast.late import Late, can_wait
from bermo.nn.fast.prenorm_kernels import prenorm_backward, prenorm_forward
from bermo.nn.fast.residual import parts_of
from bermo.nn.fast.residual_kernels import sum_parts


class AddAndNorm(torch.autograd.Function):
    """(h, x, γ, β, bias, seed, p, ε, dtype, late) -> z in float32 and y in that dtype."""

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        x: Tensor,
        gamma: Tensor,
        beta: Tensor | None,
        bias: Tensor | None,
        seed: Tensor,
        p: float,
        eps: float,
        dtype: torch.dtype,
        late: Late | None,
    ) -> tuple[Tensor, Tensor]:
        h, x = h.contiguous(), x.contiguous()
        size = x.shape[-1]
        rows = x.numel() // size
        z = torch.empty(x.shape, dtype=torch.float32, device=x.device)
        y = torch.empty(x.shape, dtype=dtype, device=x.device)
        means, spreads = torch.empty(2, rows, dtype=torch.float32, device=x.device).unbind()
        prenorm_forward[(triton.cdiv(rows, 4),)](
            h,
            x,
            gamma,
            gamma if beta is None else beta,
            seed,
            z,
            y,
            means,
            spreads,
            rows,
            eps,
            P=p,
            SHIFT=beta is not None,
            **_options(size, p),
        )
        ctx.save_for_backward(z, gamma, seed, means, spreads)
        ctx.p, ctx.dtype, ctx.beta, ctx.bias = p, h.dtype, beta, bias
        ctx.late, ctx.place = late, None
        if late is not None and beta is not None and bias is not None and can_wait(gamma, beta, bias):
            ctx.place = late.take((1, parts_of(rows, 1, 4)[0], 3, size), [[gamma], [beta], [bias]])
        ctx.set_materialize_grads(False)
        return z, y

    @staticmethod
    def backward(ctx: Any, z_grad: Tensor | None, y_grad: Tensor | None) -> tuple[Any, ...]:
        z, gamma, seed, means, spreads = ctx.saved_tensors
        if z_grad is None and y_grad is None:
            return (None,) * 10
        y_grad = torch.zeros_like(z) if y_grad is None else y_grad.contiguous()
        size = z.shape[-1]
        rows = z.numel() // size
        num_parts, num = parts_of(rows, 1, 4)
        kinds = 1 if ctx.beta is None and ctx.bias is None else 3
        dh, dx = torch.empty_like(z, dtype=ctx.dtype), torch.empty_like(z)
        parts = z.new_empty((1, num_parts, kinds, size)) if ctx.place is None else ctx.late.parts(ctx.place)
        prenorm_backward[(num_parts,)](
            z,
            gamma,
            seed,
            means,
            spreads,
            z if z_grad is None else z_grad.contiguous(),
            y_grad,
            dh,
            dx,
            parts,
            rows,
            P=ctx.p,
            OF_Z=z_grad is not None,
            NUM=num,
            KINDS=kinds,
            **_options(size, ctx.p),
        )
        if ctx.place is not None:
            return dh, dx, *(None,) * 8
        vectors = [gamma, ctx.beta, ctx.bias][:kinds]
        sums = [torch.empty_like(gamma if vector is None else vector) for vector in vectors]
        sum_parts(parts, sums)
        wanted = [None if vector is None else one for vector, one in zip(vectors, sums, strict=True)]
        return dh, dx, *wanted, *[None] * (8 - kinds)


def _options(size: int, p: float) -> dict[str, Any]:
    width = triton.next_power_of_2(size)
    return {
        "D": size,
        "WIDTH": width,
        "DROP": p > 0,
        "ROUNDS": ROUNDS,
        "num_warps": 4 if width <= 1024 else 8,
    }


def add_and_norm(
    h: Tensor,
    x: Tensor,
    gamma: Tensor,
    beta: Tensor | None,
    bias: Tensor | None,
    seed: Tensor,
    p: float,
    eps: float,
    dtype: torch.dtype | None,
    late: Late | None = None,
) -> tuple[Tensor, Tensor]:
    """Return z = x + dropout(h) in float32, and LayerNorm(z) in a dtype.

    `bias` was added, detached, where h was made: its gradient, the sum of h's, is computed here. `seed` is
    one int64 on the device. With `late` the gradients of γ, β and the bias are made at the backward pass's
    end.
    """
    z, y = AddAndNorm.apply(h, x, gamma, beta, bias, seed, p, eps, dtype or torch.float32, late)
    return z, y


def add_and_norm_twin(
    h: Tensor, x: Tensor, gamma: Tensor, beta: Tensor | None, kept: Tensor | float, eps: float
) -> tuple[Tensor, Tensor]:
    """`add_and_norm` in plain torch; `kept` holds dropout's factors."""
    z = x.float() + h.float() * kept
    return z, functional.layer_norm(z, gamma.shape, gamma, beta, eps)
