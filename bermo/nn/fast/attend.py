"""Attention over short texts in one kernel each way, for GPUs: a head of a text is one tile, and one program.

    p = softmax(scale · q kᵀ + mask)    o = (m ⊙ p) v    m: 0 with chance P, else 1 / (1 − P), from Philox
    dv = (m ⊙ p)ᵀ g    dp = m ⊙ (g vᵀ)    ds = p ⊙ (dp − Σ_j p dp)    dq = scale · ds k    dk = scale · dsᵀ q

All keys of a query are in the tile, so the backward pass computes p again from q and k and needs nothing
else: no output, no statistics and no dropout factors are kept. Sums and the softmax are in float32. A query
that may see no key gives zeros, and so do its gradients. The inputs may have any strides; the outputs are
in memory as (texts, tokens, heads, size), so that joining the heads copies nothing.
"""

from typing import Any

import torch
import triton
from torch import Tensor
from torch.nn import functional

from bermo.nn.fast.attend_bits import Seen, seen_of
from bermo.nn.fast.attend_kernels import attend_backward, attend_forward
from bermo.nn.fast.late import Late
from bermo.nn.fast.overrides import AttentionCall, FunctionOverrides
from bermo.nn.fast.residual_kernels import LARGEST, ROUNDS
from bermo.nn.fast.tiles import are_known, are_one_product, can_tile, tiles

# Tokens of a tile: one of 16, by one warp, computes wrong results on an H200 (Triton 3.6; LOG.md).
SHORTEST = 32
# Tokens of a text: longer ones are computed by tiles (`nn.fast.tiles`).
LONGEST = 64
# Units of a head.
WIDEST = 128
# Seeds drawn at once: one launch is enough for most models.
NUM_SEEDS = 32


def tile_options(num_tokens: int, size: int) -> dict[str, int]:
    """The tile of a head, and how many warps work on it."""
    block = max(SHORTEST, triton.next_power_of_2(num_tokens))
    width = max(16, triton.next_power_of_2(size))
    return {"BLOCK": block, "WIDTH": width, "num_warps": {32: 2, 64: 4}.get(block, 8)}


class Attend(torch.autograd.Function):
    """(q, k, v, mask, seed, p, scale) -> o; see `attend`."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        seed: Tensor,
        p: float,
        scale: float,
    ) -> Tensor:
        texts, heads, num_tokens, size = q.shape
        added = mask is not None and mask.dtype != torch.bool
        if mask is not None:
            mask = mask.expand(texts, heads, num_tokens, num_tokens)
            mask = mask if added else mask.view(torch.uint8)
        out = _empty_like(q)
        options = dict(
            H=heads, D=size, ADDED=added, P=p, DROP=p > 0, ROUNDS=ROUNDS, **tile_options(num_tokens, size)
        )
        attend_forward[(texts * heads,)](
            q,
            k,
            v,
            _mask_or_any(mask, out),
            seed,
            out,
            q.stride(),
            k.stride(),
            v.stride(),
            *_strides(mask),
            num_tokens,
            int(mask is not None),
            scale,
            **options,
        )
        ctx.save_for_backward(q, k, v, mask, seed)
        ctx.options, ctx.scale = options, scale
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        q, k, v, mask, seed = ctx.saved_tensors
        texts, heads, num_tokens, _ = q.shape
        dq, dk, dv = _empty_like(q), _empty_like(k), _empty_like(v)
        attend_backward[(texts * heads,)](
            q,
            k,
            v,
            _mask_or_any(mask, dq),
            seed,
            grad,
            dq,
            dk,
            dv,
            q.stride(),
            k.stride(),
            v.stride(),
            grad.stride(),
            *_strides(mask),
            num_tokens,
            int(mask is not None),
            ctx.scale,
            **ctx.options,
        )
        return dq, dk, dv, None, None, None, None


def _empty_like(x: Tensor) -> Tensor:
    """A new tensor (B, H, T, D) that is (B, T, H, D) in memory."""
    texts, heads, num_tokens, size = x.shape
    return x.new_empty(texts, num_tokens, heads, size).transpose(1, 2)


def _mask_or_any(mask: Tensor | None, other: Tensor) -> Tensor:
    """The mask, or some bytes that the kernels will not read."""
    return other.transpose(1, 2).view(torch.uint8) if mask is None else mask


def _strides(mask: Tensor | None) -> tuple[int, ...]:
    return (0, 0, 0, 0) if mask is None else mask.stride()


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    seed: Tensor | None = None,
    p: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Attention of (B, H, T, D), with dropout by a seed, one int64 on the device.

    A bool mask is true where a query may see a key; any other mask is added to the scores.
    """
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    out: Tensor = Attend.apply(q, k, v, mask, q if seed is None else seed, p, scale)
    return out


def can_attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> bool:
    """Tell whether the kernels can compute it: short texts of one dtype, a mask that takes no gradient."""
    if not are_known(q, k, v, LONGEST, WIDEST):
        return False
    texts, heads = q.shape[:2]
    num_draws = texts * heads * LONGEST * LONGEST // 4
    return num_draws < LARGEST and _can_mask(q, mask)


def _can_mask(q: Tensor, mask: Tensor | None) -> bool:
    if mask is None:
        return True
    full = (*q.shape[:3], q.shape[2])
    return (
        mask.device == q.device
        and not mask.requires_grad
        and (mask.dtype == torch.bool or mask.is_floating_point())
        and mask.dim() <= 4
        and all(a in (1, b) for a, b in zip(mask.shape[::-1], full[::-1], strict=False))
    )


def _is_one_for_all_keys(mask: Tensor | None) -> bool:
    """Tell whether a mask has one value a query, which changes no softmax.

    Some versions of transformers (5.17) make one of a batch without padding while a graph is captured. Given
    it, torch has no fused kernel, and computes in float32: nearly twice the time of a step of the box.
    """
    return mask is not None and mask.dim() > 0 and mask.shape[-1] > 1 and mask.stride(-1) == 0


def attend_twin(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, kept: Tensor | float, scale: float
) -> Tensor:
    """`attend` in plain torch; `kept` holds dropout's factors."""
    scores = (q @ k.transpose(-1, -2)).float() * scale
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, float("-inf"))
    elif mask is not None:
        scores = scores + mask
    sees = (scores > float("-inf")).any(-1, keepdim=True)
    p = scores.masked_fill(~sees, 0.0).softmax(-1) * sees
    return (p * kept).to(v.dtype) @ v


class AttentionOverride(FunctionOverrides):
    """While this context is open, the kernels above, or tiles, compute torch's attention where they can."""

    def __init__(self, late: Late | None = None) -> None:
        super().__init__()
        self.late = late
        self.seeds = torch.empty(0)
        self.num_calls = 0
        self.masks: dict[Any, tuple[Tensor, Tensor]] = {}
        self.seen: dict[Any, tuple[Tensor | None, Seen]] = {}

    def attention(self, call: AttentionCall) -> Tensor | None:
        """The attention, or None where torch has to compute it."""
        q, k, v = call.q, call.k, call.v
        place = None if self.late is None else self.late.expected(q)
        mask = None if _is_one_for_all_keys(call.mask) else call.mask
        if not call.is_causal and _can_mask(q, mask):
            seed = self._seed(q.device) if call.p > 0 else None
            if can_attend(q, k, v, mask):
                return attend(q, k, v, mask, seed, call.p, call.scale)
            if can_tile(q, k, v) and (mask is None or mask.dtype == torch.bool):
                handed = (self.late, place) if are_one_product(q, k, v) else (None, None)
                return tiles(q, k, v, self._seen(mask, q), seed, call.p, call.scale, *handed)
        if mask is not None and mask.dtype == torch.bool:
            mask = self._added(mask, q.dtype)
        if mask is call.mask:
            return None
        options: dict[str, Any] = {"dropout_p": call.p, "is_causal": call.is_causal, "scale": call.scale}
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)

    def _seen(self, mask: Tensor | None, q: Tensor) -> Seen:
        """The bits of a mask, made once for all layers."""
        key = None if mask is None else (mask.data_ptr(), mask.shape, mask.stride()), q.shape
        if key not in self.seen:
            self.seen[key] = mask, seen_of(mask, len(q), q.shape[2], q.device)
        return self.seen[key][1]

    def _added(self, mask: Tensor, dtype: torch.dtype) -> Tensor:
        """A mask of truths as one that is added: made once, where torch would make it in each layer."""
        key = mask.data_ptr(), mask.shape, mask.stride(), dtype
        if key not in self.masks:
            added = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
            # The mask is kept, so that no other one can come to lie in its place.
            self.masks[key] = mask, added.masked_fill_(~mask, float("-inf"))
        return self.masks[key][1]

    def _seed(self, device: torch.device) -> Tensor:
        """A new seed for each call, drawn on the device, so that a replayed graph draws others."""
        index = self.num_calls % NUM_SEEDS
        if index == 0:
            self.seeds = torch.randint(0, 2**62, (NUM_SEEDS,), device=device)
        self.num_calls += 1
        return self.seeds[index : index + 1]
