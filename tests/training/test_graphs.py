"""What a run decided about kernels is kept for shapes that come again."""

import json
import os
from pathlib import Path

import pytest
import torch
from torch import nn

from bermo.training.graphs import TRIES, Decisions, GraphedStep
from bermo.training.remembered import Remembered
from bermo.training.step import Comparison, WeightedBatch


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERMO_CACHE", str(tmp_path / "cache"))


class FakeStep:
    """Stands for a step on a GPU whose fused gradients are off by these gaps, one for each comparison; of
    those below 0 rounding alone moves the gradients as far.
    """

    def __init__(self, *gaps: float) -> None:
        self.gaps = list(gaps)

    def compare(self, batches: list[WeightedBatch]) -> Comparison:
        gap = self.gaps.pop(0)
        return Comparison(abs(gap), max(0.0, -gap))


def graphed(
    decisions: Decisions, *gaps: float, model: nn.Module | None = None
) -> tuple[GraphedStep, list[str]]:
    step, told = GraphedStep.__new__(GraphedStep), list[str]()
    step.step, step.tell = FakeStep(*gaps), told.append  # type: ignore[assignment]
    step.decisions, step.gpu = decisions, "a GPU"
    step.remembered = Remembered(model or nn.Linear(2, 2), "a GPU")
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
    other.gpu, other.remembered = "another GPU", Remembered(nn.Linear(2, 2), "another GPU")
    assert other._decide(batches(4)), "decisions are those of one GPU"


def test_what_a_run_found_right_is_not_compared_by_the_next_one_on_the_machine() -> None:
    first, _ = graphed({}, 0.01, 0.5)
    assert [first._decide(batches(rows)) for rows in (2, 4)] == [True, False]
    again, told = graphed({}, 0.5)
    assert again._decide(batches(2)), "known, so the gap of 0.5 is not looked at"
    assert not again._decide(batches(4))
    assert len(told) == 1, "what was wrong is compared and told again"


def test_batches_that_rounding_spoils_leave_the_decision_to_the_next_ones() -> None:
    decisions: Decisions = {}
    step, told = graphed(decisions, -0.5, -3.0, 0.01)
    assert [step._decide(batches(2)) for _ in range(4)] == [None, None, True, True]
    assert told == []
    assert not graphed({}, 0.5)[0]._decide(batches(2)), "the same run must take the same steps again"
    spoilt, told = graphed({}, *[-0.5] * TRIES)
    assert [spoilt._decide(batches(4)) for _ in range(TRIES + 1)] == [None] * (TRIES - 1) + [False] * 2
    assert "off by 50%, rounding alone by 50%" in told[0]


def test_a_resumed_run_counts_unclear_batches_on() -> None:
    decisions: Decisions = {}
    step, _ = graphed(decisions, *[-0.5] * (TRIES - 1))
    for _ in range(TRIES - 1):
        step._decide(batches(2))
    again, _ = graphed(json.loads(json.dumps(decisions)), -0.5)
    assert again._decide(batches(2)) is False


def test_another_structure_and_other_kernels_are_compared_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graphed({}, 0.01)[0]._decide(batches(2))
    assert not graphed({}, 0.5, model=nn.Linear(2, 3))[0]._decide(batches(2))
    assert not graphed({}, 0.5, model=nn.Linear(2, 2).double())[0]._decide(batches(2))
    monkeypatch.setattr("bermo.training.remembered.SOURCES", ("data",))
    assert not graphed({}, 0.5)[0]._decide(batches(2))


@pytest.mark.parametrize("content", ["", "{", "[1, 2", "{}", "[[]]", "null"])
def test_a_damaged_memory_is_as_none(content: str) -> None:
    path = Path(os.environ["BERMO_CACHE"]) / "kernels.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    assert graphed({}, 0.01)[0]._decide(batches(2))
    assert graphed({})[0]._decide(batches(2))
