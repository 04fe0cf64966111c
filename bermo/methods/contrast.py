"""Few rows: beside the labels' loss, texts of one class learn to be alike and texts of two classes not to be.

    loss = labels + weight · contrast     contrast = mean (cos − 1)² over pairs of one class
                                                   + mean cos² over pairs of two classes

That is the loss of SetFit (Tunstall et al. 2022) over all pairs of a batch, of the vectors that the head
reads, so it needs no pass of its own. Where each process has a part of the batch, pairs are of that part.
"""

from typing import Any, cast

from torch import Tensor, nn

from bermo.models.tasks import BermoPreTrainedModel
from bermo.nn.losses import contrast
from bermo.training.job import Batch, Objective


class ContrastLoss:
    """An objective of classes plus the contrast of the pooled vectors, which a hook on the head reads."""

    def __init__(self, objective: Objective, model: BermoPreTrainedModel, weight: float) -> None:
        self.objective, self.weight, self.call = objective, weight, objective.call
        self._pooled: list[Tensor] = []
        cast(nn.Module, model.head).register_forward_pre_hook(self._keep)

    def _keep(self, head: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        if head.training:
            self._pooled = [arguments[0]]

    def count(self, batch: Batch) -> int:
        return self.objective.count(batch)

    def __call__(self, outputs: Any, batch: Batch) -> Tensor:
        return self.objective(outputs, batch) + self.weight * contrast(self._pooled.pop(), batch["labels"])
