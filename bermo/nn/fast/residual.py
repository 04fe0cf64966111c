"""y = LayerNorm(x + dropout(h)) in one pass each way, for GPUs, and its twin in plain torch.

    z = x + m ⊙ h / (1 − p)          m from Philox, by a seed on the device: drawn again in the backward pass
    y = γ (z − μ) ρ + β              ρ = 1 / √(σ² + ε)
    dz = ρ (g γ − mean(g γ) − ẑ mean(g γ ẑ))      dx = dz      dh = m ⊙ dz / (1 − p)
    dγ = Σ g ẑ     dβ = Σ g     and Σ dh, which is the gradient of the bias that was added to make h

y is returned in float32 and, if the next products need it, also in bfloat16; the backward pass takes the
gradients of both, so that no cast and no addition is launched for them. γ, β and the bias may have one row
for each group: the rows of x are then divided into as many equal groups.
"""

import math
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from torch.nn import functional

from bermo.nn.fast.dropout_kernels import ROUNDS
from bermo.nn.fast.kernels import LARGEST
from bermo.nn.fast.late import Late, can_wait
from bermo.nn.fast.residual_kernels import residual_backward, residual_forward, sum_parts

# Sums over rows are made in so many parts at most.
NUM_PROGRAMS = 512


def tile_of(size: int) -> dict[str, int]:
    """How a row is divided: into at most four chunks, with four elements of each for a thread."""
    width = max(128, triton.next_power_of_2(triton.cdiv(size, 4)))
    return {"D": size, "N": triton.cdiv(size, width), "WIDTH": width}


class Summed(NamedTuple):
    """What is made of a sum."""

    y: Tensor
    copy: Tensor | None
    read: Tensor | None
    """Of the chosen token of each text, (B, 1, D)."""


class Residual(torch.autograd.Function):
    """(h, x, γ, β, bias, adds, seed, p, ε, dtype, tokens, late) -> y, its copy in that dtype, and the rows of
    the chosen tokens; empty where there is no dtype, or no tokens.
    """

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        x: Tensor,
        gamma: Tensor,
        beta: Tensor,
        bias: Tensor | None,
        adds: bool,
        seed: Tensor,
        p: float,
        eps: float,
        dtype: torch.dtype | None,
        tokens: Tensor | None,
        late: Late | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        leaves = (gamma, beta) if bias is None else (gamma, beta, bias)
        h, x, gamma, beta = h.contiguous(), x.contiguous(), gamma.contiguous(), beta.contiguous()
        size, num_groups = x.shape[-1], gamma.numel() // x.shape[-1]
        total = x.numel() // size
        rows = total // num_groups
        y = torch.empty(x.shape, dtype=torch.float32, device=x.device)
        has_half = dtype is not None
        half = torch.empty(x.shape if has_half else (0,), dtype=dtype, device=x.device)
        read = y.new_empty((0,) if tokens is None else (*tokens.shape, size))
        means, spreads = torch.empty(2, total, dtype=torch.float32, device=x.device).unbind()
        tile = tile_of(size)
        height = max(1, 512 // tile["WIDTH"])
        residual_forward[(triton.cdiv(rows, height), num_groups)](
            h,
            x,
            gamma,
            beta,
            bias if adds else h,
            seed,
            y,
            half,
            means,
            spreads,
            seed if tokens is None else tokens,
            read,
            rows,
            x.shape[-2],
            eps,
            HEIGHT=height,
            P=p,
            DROP=p > 0,
            ROUNDS=ROUNDS,
            HALF=has_half,
            ADD=adds,
            READ=tokens is not None,
            num_warps=height * tile["WIDTH"] // 128,
            **tile,
        )
        ctx.save_for_backward(h, x, gamma, seed, means, spreads, tokens)
        ctx.rows, ctx.p, ctx.beta, ctx.bias, ctx.adds = rows, p, beta.shape, bias, adds
        ctx.late, ctx.place = late, None
        if late is not None and can_wait(*leaves):
            num_parts, _ = parts_of(rows, num_groups, 1)
            ctx.place = late.take((num_groups, num_parts, 3, size), [[leaf] for leaf in leaves])
        ctx.set_materialize_grads(False)
        absent = [*([] if has_half else [half]), *([] if tokens is not None else [read])]
        ctx.mark_non_differentiable(*absent)
        return y, half, read

    @staticmethod
    def backward(
        ctx: Any, grad: Tensor | None, half_grad: Tensor | None, read_grad: Tensor | None
    ) -> tuple[Any, ...]:
        if grad is None and half_grad is None and read_grad is None:
            return (None,) * 12
        h, x, gamma, seed, means, spreads, tokens = ctx.saved_tensors
        size, num_groups = x.shape[-1], gamma.numel() // x.shape[-1]
        num_parts, num = parts_of(ctx.rows, num_groups, 1)
        dh, dx = torch.empty_like(h), torch.empty_like(x)
        if ctx.place is None:
            parts = x.new_empty((num_groups, num_parts, 3, size), dtype=torch.float32)
        else:
            parts = ctx.late.parts(ctx.place)
        tile = tile_of(size)
        wide = x if grad is None else grad.contiguous()
        residual_backward[(num_parts, num_groups)](
            h,
            x,
            gamma,
            ctx.bias.detach() if ctx.adds else h,
            seed,
            means,
            spreads,
            wide,
            h if half_grad is None else half_grad.contiguous(),
            seed if tokens is None else tokens,
            x if read_grad is None else read_grad.contiguous(),
            dh,
            dx,
            parts,
            ctx.rows,
            x.shape[-2],
            P=ctx.p,
            DROP=ctx.p > 0,
            ROUNDS=ROUNDS,
            WIDE=grad is not None,
            HALF=half_grad is not None,
            NUM=num,
            ADD=ctx.adds,
            READ=read_grad is not None,
            num_warps=tile["WIDTH"] // 128,
            **tile,
        )
        if ctx.place is not None:
            return dh, dx, *(None,) * 10
        of_gamma, of_beta = torch.empty_like(gamma), torch.empty_like(gamma)
        bias = None if ctx.bias is None else torch.empty_like(ctx.bias)
        sum_parts(parts, [of_gamma, of_beta] if bias is None else [of_gamma, of_beta, bias])
        return dh, dx, of_gamma, of_beta.view(ctx.beta), bias, *(None,) * 7


def parts_of(rows: int, num_groups: int, height: int) -> tuple[int, int]:
    """In how many parts the rows of a group are summed, and how many blocks of `height` rows are in each."""
    num_blocks = triton.cdiv(rows, height)
    num = triton.next_power_of_2(triton.cdiv(num_blocks * num_groups, NUM_PROGRAMS))
    return triton.cdiv(num_blocks, num), num


def residual(
    h: Tensor,
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    seed: Tensor,
    p: float = 0.0,
    eps: float = 1e-12,
    bias: Tensor | None = None,
    half: torch.dtype | None = None,
    adds: bool = False,
    tokens: Tensor | None = None,
    late: Late | None = None,
) -> Summed:
    """LayerNorm(x + dropout(h)) in float32, and a copy in the dtype `half`, if one is given.

    `bias` was added, detached, where h was made, or with `adds` is added to h here. Its gradient, the sum of
    h's, is computed here in both cases. `seed` is one int64 on the device. With `late` the gradients of γ, β
    and the bias are made at the end of the backward pass. With `tokens` (B, 1), one token of each text of x
    (B, T, D), their rows are given by themselves, and the backward pass adds their gradient.
    """
    y, copy, read = Residual.apply(h, x, gamma, beta, bias, adds, seed, p, eps, half, tokens, late)
    return Summed(y, None if half is None else copy, None if tokens is None else read)


def fits_kernels(x: Tensor) -> bool:
    """Tell whether the kernels can count a tensor's elements and hold one of its rows."""
    return x.is_floating_point() and x.numel() < LARGEST and x.shape[-1] <= 8192


def residual_twin(
    h: Tensor,
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    kept: Tensor | float = 1.0,
    eps: float = 1e-12,
) -> Tensor:
    """`residual` in plain torch; `kept` holds dropout's factors."""
    z = x.float() + h.float() * kept
    num_groups = math.prod(gamma.shape[:-1])
    if num_groups == 1:
        return functional.layer_norm(z, gamma.shape[-1:], gamma.flatten(), beta.flatten(), eps)
    normal = functional.layer_norm(z, gamma.shape[-1:], eps=eps).view(num_groups, -1, z.shape[-1])
    return (normal * gamma[:, None] + beta[:, None]).view(z.shape)
