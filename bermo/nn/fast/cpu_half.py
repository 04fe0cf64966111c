"""Attention and dropout for training in bfloat16 on x86 CPUs with AMX, where torch's own are slow.

    p = softmax(scale · q kᵀ + mask)     d = m ⊙ p     o = f d v         m: 0 with chance P, else 1
    dv = f dᵀ g     ds = f d ⊙ (g vᵀ) − p Σ_D (o ⊙ g)     dq = scale · ds k     dk = scale · dsᵀ q
    f = 1 / (1 − P)

torch computes attention with dropout in float32 too, but in single operations of which some only change a
type, and without dropout the backward pass of its fused kernel takes up to seven times as long as these
products (results/half-x86.json); but for long texts it needs no memory for their scores, and stays. It draws
dropout's numbers one by one; here four come from 64 random bits, so that P is a multiple of 2⁻¹⁶ (0.1 is
0.10001) and f is that of this P. So the numbers are others than torch's, from the same generator.
"""

import math
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bermo.machine import Processor, processor
from bermo.nn.fast.overrides import AttentionCall, FunctionOverrides, is_checkpointing

STEPS = 2**16
"""How many values a number has that dropout is decided by."""
LONGEST = 128
"""Tokens up to which attention without dropout is ours: as far as it was measured."""


def draw_kept(shape: torch.Size, p: float, dtype: torch.dtype) -> tuple[Tensor, float]:
    """Return 0 with chance p and else 1 for each element, and the factor that keeps the mean."""
    bound, size = min(round(p * STEPS), STEPS - 1), math.prod(shape)
    bits = torch.empty(-(-size // 4), dtype=torch.int64).random_(-(2**63), None)
    drawn = bits.view(torch.int16)[:size].view(shape)
    kept = torch.ge(drawn, bound - STEPS // 2, out=torch.empty(shape, dtype=dtype))
    return kept, STEPS / (STEPS - bound)


class HalfAttention(torch.autograd.Function):
    """softmax(scale · q kᵀ + mask) v with dropout, over (B, H, T, D) in bfloat16, computed in float32.

    Factors are multiplied into the vectors, of which there are fewer than shares.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float, scale: float
    ) -> Tensor:
        B, H, T, D = q.shape
        q_NTD, k_NSD, v_NSD = (x.reshape(B * H, -1, D).float() for x in (q, k, v))
        q_NTD.mul_(scale)
        shares = _shares(q_NTD, k_NSD, mask, (B, H))
        kept, factor = shares, 1.0
        if p > 0:
            kept, factor = draw_kept(shares.shape, p, shares.dtype)
            kept.mul_(shares)
            v_NSD.mul_(factor)
        out_NTD = torch.bmm(kept, v_NSD)
        ctx.save_for_backward(q_NTD, k_NSD, v_NSD, shares, kept, out_NTD)
        ctx.factor, ctx.scale, ctx.shape = factor, scale, (B, H, -1, D)
        return out_NTD.to(q.dtype).view(B, H, T, D)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q_NTD, k_NSD, v_NSD, shares, kept, out_NTD = ctx.saved_tensors
        g_NTD = grad.reshape(q_NTD.shape).float()
        means = (out_NTD * g_NTD).sum(-1, keepdim=True)
        dv = torch.bmm(kept.transpose(1, 2), g_NTD).mul_(ctx.factor)
        ds = torch.bmm(g_NTD, v_NSD.transpose(1, 2)).mul_(kept).addcmul_(shares, means, value=-1)
        dq, dk = torch.bmm(ds, k_NSD).mul_(ctx.scale), torch.bmm(ds.transpose(1, 2), q_NTD)
        return (*(d.to(grad.dtype).view(ctx.shape) for d in (dq, dk, dv)), None, None, None)


def _shares(q_NTD: Tensor, k_NSD: Tensor, mask: Tensor | None, texts_and_heads: tuple[int, int]) -> Tensor:
    """softmax(q kᵀ + mask); a row that sees nothing is all zeros."""
    k_NDS = k_NSD.transpose(1, 2)
    if mask is None:
        return torch.softmax(torch.bmm(q_NTD, k_NDS), -1)
    if mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape).masked_fill_(~mask, -math.inf)
    T, S = q_NTD.shape[1], k_NDS.shape[2]
    mask_NTS = mask.float().expand(*texts_and_heads, T, S).reshape(-1, T, S)
    scores = torch.baddbmm(mask_NTS, q_NTD, k_NDS)
    sees_nothing = bool((mask == -math.inf).all(-1).any())
    return torch._safe_softmax(scores, -1) if sees_nothing else torch.softmax(scores, -1)


class HalfDropout(torch.autograd.Function):
    """f m ⊙ x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        kept, ctx.factor = draw_kept(x.shape, p, x.dtype)
        ctx.save_for_backward(kept)
        return torch.mul(kept, x).mul_(ctx.factor)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (kept,) = ctx.saved_tensors
        return torch.mul(kept, grad).mul_(ctx.factor), None


def has_fast_half(cpu: Processor) -> bool:
    """Tell whether a CPU trains faster in bfloat16, and then with these functions in place of torch's own.

    Measured by benchmarks/half.py and loop.py on an x86 processor with AMX; others get torch's own.
    """
    return cpu.is_x86 and "AMX bf16" in cpu.instructions


def is_faster_in_half(model: nn.Module, device: torch.device, is_slow: bool | None = None) -> bool:
    """Tell whether a model trains faster in bfloat16 on a device with `HalfOverrides`.

    `is_slow` says so of torch on this CPU; without it the measurements above decide.
    """
    if device.type != "cpu" or is_checkpointing(model):
        return False
    return has_fast_half(processor()) if is_slow is None else is_slow


class HalfOverrides(FunctionOverrides):
    """While this context is open, the functions above compute attention and dropout where they can."""

    def attention(self, call: AttentionCall) -> Tensor | None:
        """The attention, or None where torch has to compute it."""
        q, k, v, mask = call.q, call.k, call.v, call.mask
        is_plain = q.dim() == 4 and q.shape[:2] == k.shape[:2] and k.shape == v.shape
        has_learned_mask = mask is not None and mask.requires_grad
        can_compute = torch.is_grad_enabled() and torch.is_autocast_enabled("cpu") and q.device.type == "cpu"
        is_long = call.p == 0 and max(q.shape[2], k.shape[2]) > LONGEST
        if has_learned_mask or not is_plain or not can_compute or is_long:
            return None
        if call.is_causal:
            mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
        half = torch.get_autocast_dtype("cpu")
        with torch.autocast("cpu", enabled=False):
            given = (x.to(half) for x in (q, k, v))
            return cast(Tensor, HalfAttention.apply(*given, mask, call.p, call.scale))

    def dropout(self, x: Tensor, p: float, is_training: bool, in_place: bool) -> Tensor | None:
        """The dropout, or None where torch has to compute it."""
        is_simple = is_training and not in_place and 0 < p < 1 and x.requires_grad
        if not is_simple or x.device.type != "cpu" or not torch.is_grad_enabled():
            return None
        return cast(Tensor, HalfDropout.apply(x, p))
