"""Texts without labels in a training: the teacher's part of the loss counts for them, no label's does.

    loss of a batch = Σ over its rows (hard · label, where there is one, + the teacher's terms) / rows

Turc et al. 2019 (Well-read students learn better) teach by such texts alone: --distill-hard 0.
"""

from dataclasses import dataclass

import numpy as np
import torch

from bermo.training.job import Batch, Batches

HAS_LABEL = "has_label"
"""The key of a batch under which it says which rows have a label; without it all have."""


@dataclass(frozen=True)
class PartlyLabelled:
    """Batches that say which of their rows have a label: the first `num_labelled` of all."""

    batches: Batches
    num_labelled: int

    def epoch(self, epoch: int) -> list[np.ndarray]:
        return list(self.batches.epoch(epoch))

    def collate(self, rows: np.ndarray) -> Batch:
        has_label = torch.from_numpy(np.asarray(rows) < self.num_labelled)
        return self.batches.collate(rows) | {HAS_LABEL: has_label}
