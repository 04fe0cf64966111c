"""Short rows first: the first steps of a pretraining read rows of fewer tokens (Li et al. 2021).

A step of short rows costs less, and attention learns near words before far ones. Which rows a step reads
follows from its number alone; those of short steps are given as −1 − row, so that no state is kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from bermo.data.pretrain.packing import PackedBatches, Pairs, Stream


@dataclass(frozen=True)
class ShortFirst:
    """Batches of short rows for the first `steps`, then those of whole ones; both have as many rows."""

    whole: PackedBatches
    short: PackedBatches
    steps: int

    @property
    def source(self) -> Stream | Pairs:
        """What the whole rows are cut from."""
        return self.whole.source

    def epoch(self, epoch: int) -> Sequence[np.ndarray]:
        """Return the numbers of each batch's rows."""
        batches = list(self.whole.epoch(epoch))
        first = epoch * len(batches)
        num_short = max(0, min(len(batches), self.steps - first))
        batches[:num_short] = self._short_rows(first, num_short)
        return batches

    def _short_rows(self, first: int, count: int) -> list[np.ndarray]:
        """Return the rows of so many short steps, one epoch of short rows after the other."""
        size = self.short.source.num_rows // self.short.batch_size
        epochs = range(first // size, -(-(first + count) // size)) if count else range(0)
        batches = [-1 - rows for epoch in epochs for rows in self.short.epoch(epoch)]
        return batches[first % size :][:count]

    def collate(self, rows: np.ndarray) -> dict[str, torch.Tensor]:
        """Return the tensors of short or of whole rows."""
        return self.short.collate(-1 - rows) if rows[0] < 0 else self.whole.collate(rows)
