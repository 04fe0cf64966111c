"""Masks set on a graphics card over the most important weights, as many as a number on the device says.

By kernels that do not sort (`nn.select`) for fp32 weights and masks over single weights; by sorting for blocks and other dtypes.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bermo.nn.fast.available import has_kernels
from bermo.nn.masks import Mask, TopMask, importance, top_masks_at


class Choice:
    """Sets masks; its tables of addresses are made the first time, and again where something was moved."""

    def __init__(self) -> None:
        self.places: list[int] = []
        self.chooser: Any = None

    def choose_(
        self,
        pairs: Sequence[tuple[Mask, Tensor]],
        kept: Tensor,
        segments: Sequence[int],
        is_scaled: bool,
    ) -> None:
        """Set the masks of (mask, weight) pairs; neighbours of one segment share a number of `kept`."""
        is_wide = all(weight.dtype == torch.float32 for _, weight in pairs)
        if has_kernels() and is_wide and all(mask.blocks.size == (1, 1) for mask, _ in pairs):
            self._chooser(pairs, segments, is_scaled).choose_(kept)
        else:
            _sort_(pairs, kept, segments, is_scaled)

    def _chooser(self, pairs: Sequence[tuple[Mask, Tensor]], segments: Sequence[int], is_scaled: bool) -> Any:
        masks = [mask.mask for mask, _ in pairs]
        scores = [mask.scores.detach() for mask, _ in pairs if not isinstance(mask, TopMask)]
        weights = [weight.detach() for _, weight in pairs] if is_scaled or not scores else []
        places = [tensor.data_ptr() for tensor in (*masks, *scores, *weights)]
        if self.places != places:
            from bermo.nn.fast.select import Chooser

            self.chooser = Chooser(masks, scores=scores or None, weights=weights or None, segments=segments)
            self.places = places
        return self.chooser


def _sort_(
    pairs: Sequence[tuple[Mask, Tensor]], kept: Tensor, segments: Sequence[int], is_scaled: bool
) -> None:
    for segment in range(segments[-1] + 1):
        own = [pair for pair, owner in zip(pairs, segments, strict=True) if owner == segment]
        ranked = [importance(mask, weight, is_scaled) for mask, weight in own]
        found = top_masks_at(ranked, kept[segment : segment + 1], is_global=len(own) > 1)
        torch._foreach_copy_([mask.mask for mask, _ in own], found)
