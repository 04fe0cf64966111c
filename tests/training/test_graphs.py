"""What a run decided about kernels is kept for shapes that come again."""

import torch

from bermo.training.graphs import Decisions, GraphedStep
from bermo.training.step import WeightedBatch


class FakeStep:
    """Stands for a step on a GPU whose fused gradients are off by these gaps, one for each comparison."""

    def __init__(self, *gaps: float) -> None:
        self.gaps = list(gaps)

    def gap(self, batches: list[WeightedBatch]) -> float:
        return self.gaps.pop(0)


def graphed(decisions: Decisions, *gaps: float) -> tuple[GraphedStep, list[str]]:
    step, told = GraphedStep.__new__(GraphedStep), list[str]()
    step.step, step.tell = FakeStep(*gaps), told.append  # type: ignore[assignment]
    step.decisions, step.gpu = decisions, "a GPU"
    return step, told


def batches(rows: int) -> list[WeightedBatch]:
    return [WeightedBatch({"input_ids": torch.zeros(rows, 8, dtype=torch.long)}, 1.0, True)]


def test_a_shape_is_compared_once_and_the_decision_is_kept_for_the_gpu() -> None:
    decisions: Decisions = {}
    step, told = graphed(decisions, 0.01, 0.5)
    assert [step._decide(batches(rows)) for rows in (2, 4, 2, 4)] == [True, False, True, False]
    assert len(told) == 1
    again, told = graphed(decisions)  # nothing is compared any more
    assert [again._decide(batches(rows)) for rows in (2, 4)] == [True, False]
    assert told == []
    other, _ = graphed(decisions, 0.01)
    other.gpu = "another GPU"
    assert other._decide(batches(4)), "decisions are those of one GPU"
