"""Few rows: beside the labels' loss, texts of one class learn to be alike and texts of two classes not to be.

    loss = labels + weight · contrast (nn/contrast.py)

It is taken over all pairs of a batch, of the vectors that the head reads, so it needs no pass of its own.
Several processes hand each other their vectors, so that pairs are of the whole batch; an accumulation of
gradients has no whole batch, and no contrast.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.nn.functional import all_gather
from torch.nn import functional

from bermo.methods.unlabelled import HAS_LABEL
from bermo.models.tasks import BermoPreTrainedModel
from bermo.nn.contrast import contrast
from bermo.nn.heads import IGNORED
from bermo.training.job import Batch, Objective


class ContrastLoss:
    """An objective of classes plus the contrast of the pooled vectors, which a hook on the head reads."""

    def __init__(
        self,
        objective: Objective,
        model: BermoPreTrainedModel,
        weight: float,
        most_rows: int,
        num_processes: int = 1,
    ) -> None:
        """`most_rows` is the largest number of rows that a process has of a batch."""
        self.objective, self.weight, self.call = objective, weight, objective.call
        self.most_rows, self.num_processes = most_rows, num_processes
        self._pooled: list[Tensor] = []
        cast(nn.Module, model.head).register_forward_pre_hook(self._keep)

    def _keep(self, head: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        self._pooled = [arguments[0]]

    def count(self, batch: Batch) -> int:
        return self.objective.count(batch)

    def __call__(self, outputs: Any, batch: Batch) -> Tensor:
        vectors_BD, classes_B = self._pooled.pop(), batch["labels"]
        if HAS_LABEL in batch:
            classes_B = classes_B.masked_fill(~batch[HAS_LABEL], IGNORED)
        if self.num_processes > 1:
            vectors_BD, classes_B = self._of_all_processes(vectors_BD, classes_B)
        return self.objective(outputs, batch) + self.weight * contrast(vectors_BD, classes_B)

    def _of_all_processes(self, vectors_BD: Tensor, classes_B: Tensor) -> tuple[Tensor, Tensor]:
        """Put the rows of all processes together; gradients flow back to the process that a row is of."""
        missing = self.most_rows - len(classes_B)
        padded_BD = functional.pad(vectors_BD, (0, 0, 0, missing))
        padded_B = functional.pad(classes_B, (0, missing), value=IGNORED)
        return torch.cat(all_gather(padded_BD)), torch.cat(all_gather(padded_B))
