"""torch's attention, as a model calls it, computed by tiles where our kernels can (`nn.fast.tiles`).

The twin is in plain torch.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bermo.nn.fast.attend_bits import Seen, seen_of
from bermo.nn.fast.late import Late
from bermo.nn.fast.overrides import AttentionCall, FunctionOverrides
from bermo.nn.fast.tiles import are_one_product, can_tile, tiles

# Seeds drawn at once: one launch is enough for most models.
NUM_SEEDS = 32


def _can_mask(q: Tensor, mask: Tensor | None) -> bool:
    """Tell whether a mask is none, or one of truths that broadcasts to all pairs of tokens."""
    if mask is None:
        return True
    full = (*q.shape[:3], q.shape[2])
    return (
        mask.device == q.device
        and mask.dtype == torch.bool
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
    """`tiles` in plain torch; `kept` holds dropout's factors."""
    scores = (q @ k.transpose(-1, -2)).float() * scale
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, float("-inf"))
    elif mask is not None:
        scores = scores + mask
    sees = (scores > float("-inf")).any(-1, keepdim=True)
    p = scores.masked_fill(~sees, 0.0).softmax(-1) * sees
    return (p * kept).to(v.dtype) @ v


class AttentionOverride(FunctionOverrides):
    """While this context is open, tiles compute torch's attention where they can."""

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
        if not call.is_causal and can_tile(q, k, v) and _can_mask(q, mask):
            seed = self._seed(q.device) if call.p > 0 else None
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
