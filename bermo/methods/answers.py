"""Learning from a teacher's answers alone: its probabilities come from a file, whoever made them."""

from dataclasses import replace
from typing import Any

from torch import Tensor

from bermo.data.tasks import Kind
from bermo.methods.distill import answer_distance, counts_of, logits_of
from bermo.methods.teacher import LOGITS
from bermo.nn.losses import mean_over
from bermo.spec import DistillSpec
from bermo.training.job import Batch, Objective


class AnsweredLoss:
    """hard · labels + soft · distance to the answers that the batch brings."""

    def __init__(self, hard: Objective, kind: Kind, spec: DistillSpec) -> None:
        self.hard, self.kind, self.spec = hard, kind, spec
        self.call = replace(hard.call, only_for_loss=hard.call.only_for_loss | {LOGITS})

    def count(self, batch: Batch) -> int:
        return self.hard.count(batch)

    def __call__(self, outputs: Any, batch: Batch) -> Tensor:
        distance_B = answer_distance(
            self.kind, logits_of(outputs), batch[LOGITS], batch, self.spec.temperature
        )
        learned = self.spec.soft * mean_over(distance_B, counts_of(batch))
        return self.spec.hard * self.hard(outputs, batch) + learned
