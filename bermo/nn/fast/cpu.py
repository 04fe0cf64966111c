"""Attention with dropout, and gelu, for training on ARM CPUs, where torch's own backward passes are slow.

    p = softmax(scale · q kᵀ + mask)     o = (m ⊙ p) v         m: 0 with chance P, else 1 / (1 − P)
    dv = (m ⊙ p)ᵀ g     dp = m ⊙ (g vᵀ)     ds = scale · p ⊙ (dp − Σ_j p dp)     dq = ds k     dk = dsᵀ q
    gelu'(x) = Φ(x) + x φ(x)

On ARM a batch of small products whose second factor is transposed takes twelve times as long as after a
copy (24 tokens; at 16 as long), and gelu with its gradient over twice as long (results/host-cpu.json). On
x86 torch is as fast or faster (results/host-x86.json). The random numbers are those that torch draws; the
results differ by rounding alone.
"""

import math
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from bermo.machine import Processor, processor
from bermo.nn.fast.overrides import AttentionCall, FunctionOverrides, is_checkpointing


class Attention(torch.autograd.Function):
    """softmax(scale · q kᵀ + mask) v with dropout, over (B, H, T, D).

    Every product gets factors that are in memory in the order in which it reads them.
    """

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


def are_slow_in_torch(cpu: Processor, has_mkl: bool) -> bool:
    """Tell whether torch's own passes are the slower ones on a CPU.

    Measured by benchmarks/host.py: yes on 64-bit ARM under Linux (Neoverse-N1, torch 2.13), whose builds of
    torch have no MKL; no on x86, where MKL multiplies. Others were not measured and get torch's own.
    """
    return cpu.is_arm and cpu.system == "Linux" and not has_mkl


def is_slow_here() -> bool:
    """`are_slow_in_torch` of this machine."""
    return are_slow_in_torch(processor(), torch.backends.mkl.is_available())


def is_faster(model: nn.Module, device: torch.device, is_slow: bool | None = None) -> bool:
    """Tell whether a model trains faster on a device with `CpuOverrides`.

    `is_slow` says so of torch on this CPU; without it the measurements above decide.
    """
    if device.type != "cpu" or is_checkpointing(model):
        return False
    return is_slow_here() if is_slow is None else is_slow


class CpuOverrides(FunctionOverrides):
    """While this context is open, the functions above compute attention and gelu where they can."""

    def attention(self, call: AttentionCall) -> Tensor | None:
        """The attention, or None where torch has to compute it; without dropout torch is fast."""
        q, k, v, mask = call.q, call.k, call.v, call.mask
        is_plain = q.dim() == 4 and q.shape[:2] == k.shape[:2] and k.shape == v.shape
        has_learned_mask = mask is not None and mask.requires_grad
        if call.p == 0 or has_learned_mask or not is_plain or not _can_compute(q, k, v):
            return None
        if call.is_causal:
            mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
        return cast(Tensor, Attention.apply(q, k, v, mask, call.p, call.scale))

    def gelu(self, x: Tensor, approximate: str = "none") -> Tensor | None:
        """The gelu, or None where torch has to compute it."""
        if approximate != "none" or not x.requires_grad or not _can_compute(x):
            return None
        return cast(Tensor, Gelu.apply(x))


def _can_compute(*tensors: Tensor) -> bool:
    is_known = all(x.device.type == "cpu" and x.dtype == torch.float32 for x in tensors)
    return is_known and torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


def _turned(x_NSD: Tensor) -> Tensor:
    return x_NSD.transpose(1, 2).contiguous()
