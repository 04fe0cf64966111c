"""Masks on a GPU set over the most important weights, as many as a number on the device says.

fp32 weights with masks over single weights: by kernels that do not sort (`nn.fast.select`). Blocks and other
dtypes: by sorting.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bermo.nn.fast.available import has_kernels
from bermo.nn.masks import Mask, Rank, TopMask, importance, moment_of, top_masks_at


class MaskSelector:
    """Sets masks; the tables of addresses are built at the first call, and again when a tensor was moved."""

    def __init__(self) -> None:
        self.addresses: list[int] = []
        self.selector: Any = None

    def select_(
        self,
        pairs: Sequence[tuple[Mask, Tensor]],
        kept: Tensor,
        segments: Sequence[int],
        rank: Rank,
    ) -> None:
        """Set the masks of (mask, weight) pairs; neighbours of one segment share a number of `kept`."""
        is_wide = all(weight.dtype == torch.float32 for _, weight in pairs)
        if has_kernels() and is_wide and all(mask.blocks.size == (1, 1) for mask, _ in pairs):
            self._selector(pairs, segments, rank).select_(kept)
        else:
            _sort_(pairs, kept, segments, rank)

    def _selector(self, pairs: Sequence[tuple[Mask, Tensor]], segments: Sequence[int], rank: Rank) -> Any:
        masks = [mask.mask for mask, _ in pairs]
        scores = [mask.scores.detach() for mask, _ in pairs if not isinstance(mask, TopMask)]
        weights = (
            [_factor(mask, weight, rank) for mask, weight in pairs] if rank != "score" or not scores else []
        )
        addresses = [tensor.data_ptr() for tensor in (*masks, *scores, *weights)]
        if self.addresses != addresses:
            from bermo.nn.fast.select import TopSelector

            self.selector = TopSelector(
                masks, scores=scores or None, weights=weights or None, segments=segments
            )
            self.addresses = addresses
        return self.selector


def _factor(mask: Mask, weight: Tensor, rank: Rank) -> Tensor:
    """What the kernels take the size of and multiply by σ(score): a tensor that stays where it is."""
    moment = moment_of(mask, rank)
    return weight.detach() if moment is None else moment


def _sort_(pairs: Sequence[tuple[Mask, Tensor]], kept: Tensor, segments: Sequence[int], rank: Rank) -> None:
    for segment in range(segments[-1] + 1):
        own = [pair for pair, owner in zip(pairs, segments, strict=True) if owner == segment]
        ranked = [importance(mask, weight, rank) for mask, weight in own]
        masks = top_masks_at(ranked, kept[segment : segment + 1], is_global=len(own) > 1)
        torch._foreach_copy_([mask.mask for mask, _ in own], masks)
