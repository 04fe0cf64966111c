"""Attention with dropout, and gelu, in training on ARM processors, where torch's own backward passes are slow.

    p = softmax(scale · q kᵀ + mask)     o = (m ⊙ p) v         m: 0 with chance P, else 1 / (1 − P)
    dv = (m ⊙ p)ᵀ g     dp = m ⊙ (g vᵀ)     ds = scale · p ⊙ (dp − Σ_j p dp)     dq = ds k     dk = dsᵀ q
    gelu'(x) = Φ(x) + x φ(x)

There a batch of small products whose second factor is transposed takes twelve times as long as after a copy (24 tokens; at 16 as long), and gelu
both ways over twice as long (results/host-cpu.json). The random numbers are those that torch draws; the results differ by rounding alone.
"""

import math
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from bermo.machine import processor
from bermo.nn.fast.serving import Asked, Serving, is_checkpointing

IS_SLOW = processor().is_arm and processor().system == "Linux"
"""Whether torch's own passes are the slow ones here: measured on Neoverse-N1, torch 2.13, by benchmarks/host.py."""


class Attention(torch.autograd.Function):
    """softmax(scale · q kᵀ + mask) v with dropout, over (B, H, T, D); every product gets factors that lie as they are read."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float, scale: float
    ) -> Tensor:
        B, H, T, D = q.shape
        q_NTD, k_NSD, v_NSD = (x.reshape(B * H, -1, D) for x in (q, k, v))
        scores = torch.bmm(q_NTD, _turned(k_NSD)).mul_(scale).view(B, H, T, -1)
        if mask is not None and mask.dtype == torch.bool:
            scores.masked_fill_(~mask, -math.inf)
        elif mask is not None:
            scores.add_(mask)
        shares = torch._safe_softmax(scores, -1).view(B * H, T, -1)
        kept = torch.empty_like(shares).bernoulli_(1 - p).div_(1 - p)
        ctx.save_for_backward(q_NTD, k_NSD, v_NSD, shares, kept)
        ctx.scale, ctx.shape = scale, (B, H, -1, D)
        return torch.bmm(shares * kept, v_NSD).view(B, H, T, D)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q_NTD, k_NSD, v_NSD, shares, kept = ctx.saved_tensors
        g_NTD = grad.reshape(q_NTD.shape)
        dv = torch.bmm((shares * kept).transpose(1, 2), g_NTD)
        d_shares = torch.bmm(g_NTD, _turned(v_NSD)).mul_(kept)
        ds = torch._softmax_backward_data(d_shares, shares, -1, shares.dtype).mul_(ctx.scale)
        dq, dk = torch.bmm(ds, k_NSD), torch.bmm(ds.transpose(1, 2), q_NTD)
        return (*(d.view(ctx.shape) for d in (dq, dk, dv)), None, None, None)


class Gelu(torch.autograd.Function):
    """The exact gelu, x Φ(x)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return functional.gelu(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        below = torch.erf(x * math.sqrt(0.5)).add_(1).mul_(0.5)
        density = torch.exp((x * x).mul_(-0.5)).mul_(1 / math.sqrt(2 * math.pi))
        return below.addcmul_(x, density).mul_(grad)


def can_host(model: nn.Module, device: torch.device) -> bool:
    """Tell whether a model in training gains by `Hosting` here."""
    return device.type == "cpu" and IS_SLOW and not is_checkpointing(model)


class Hosting(Serving):
    """While this holds, what is slow here is computed by the functions above where they can serve."""

    def attention(self, asked: Asked) -> Tensor | None:
        """The attention, or None where torch has to compute it; without dropout it does so well."""
        q, k, v, mask = asked.q, asked.k, asked.v, asked.mask
        is_plain = q.dim() == 4 and q.shape[:2] == k.shape[:2] and k.shape == v.shape
        has_learned_mask = mask is not None and mask.requires_grad
        if asked.p == 0 or has_learned_mask or not is_plain or not _can_serve(q, k, v):
            return None
        if asked.is_causal:
            mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
        return cast(Tensor, Attention.apply(q, k, v, mask, asked.p, asked.scale))

    def gelu(self, x: Tensor, approximate: str = "none") -> Tensor | None:
        """The gelu, or None where torch has to compute it."""
        if approximate != "none" or not x.requires_grad or not _can_serve(x):
            return None
        return cast(Tensor, Gelu.apply(x))


def _can_serve(*tensors: Tensor) -> bool:
    is_known = all(x.device.type == "cpu" and x.dtype == torch.float32 for x in tensors)
    return is_known and torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


def _turned(x_NSD: Tensor) -> Tensor:
    return x_NSD.transpose(1, 2).contiguous()
