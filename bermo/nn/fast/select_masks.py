"""Masks on a GPU set over the most important weights, as many as a number on the device says.

fp32 weights with masks over single weights: by kernels that do not sort (`nn.fast.select`), which also write
the copies M ⊙ W that a `Shadow` gave the masks. Blocks and other dtypes: by sorting.
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
        stacked: Sequence[Mask] = (),
    ) -> None:
        """Set the masks of (mask, weight) pairs; neighbours of one segment share a number of `kept`.

        Of models trained as one give the `stacked` masks, of which those of the pairs are parts.
        """
        is_wide = all(weight.dtype == torch.float32 for _, weight in pairs)
        if not (has_kernels() and is_wide and all(mask.blocks.size == (1, 1) for mask, _ in pairs)):
            _sort_(pairs, kept, segments, rank)
            return
        wholes = stacked or [mask for mask, _ in pairs]
        copies = _copies_of([mask for mask, _ in pairs], wholes)
        self._selector(pairs, segments, rank, copies).select_(kept)
        for mask in wholes:
            mask.is_copied = bool(copies)

    def _selector(
        self,
        pairs: Sequence[tuple[Mask, Tensor]],
        segments: Sequence[int],
        rank: Rank,
        copies: Sequence[Tensor] = (),
    ) -> Any:
        masks = [mask.mask for mask, _ in pairs]
        scores = [mask.scores.detach() for mask, _ in pairs if not isinstance(mask, TopMask)]
        weights = (
            [_factor(mask, weight, rank) for mask, weight in pairs] if rank != "score" or not scores else []
        )
        originals = [weight.detach() for _, weight in pairs] if copies else []
        copied = list(zip(originals, copies, strict=True))
        tensors = (*masks, *scores, *weights, *originals, *copies)
        addresses = [tensor.data_ptr() for tensor in tensors]
        if self.addresses != addresses:
            from bermo.nn.fast.select import TopSelector

            self.selector = TopSelector(
                masks, scores=scores or None, weights=weights or None, segments=segments, copied=copied
            )
            self.addresses = addresses
        return self.selector


def _copies_of(masks: Sequence[Mask], wholes: Sequence[Mask]) -> list[Tensor]:
    """The copy of each mask, or its part of the copy of a stack; none where the wholes have no copies."""
    copies: dict[int, Tensor] = {}
    num_models = len(masks) // len(wholes)
    for whole in wholes:
        if whole.copy is None:
            return []
        parts = [item.detach().view(num_models, -1) for item in (whole.mask, whole.copy)]
        copies |= {mask.data_ptr(): copy for mask, copy in zip(*parts, strict=True)}
    return [copies[mask.mask.data_ptr()] for mask in masks]


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
