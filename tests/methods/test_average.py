"""A mean of the weights over the steps is scored and saved in the place of the last weights."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from bermo.errors import BermoError
from bermo.fields import check
from bermo.methods.checks import check_methods
from bermo.methods.finetune import _Seed, finetune
from bermo.models.tasks import BermoForSequenceClassification
from bermo.spec import DataSpec, RunSpec, TrainSpec, replace_in
from bermo.training.loop import _Loop
from tests.methods.resumed import check_resumes_to_the_bit

pytestmark = pytest.mark.usefixtures("shallow_box")
ON = RunSpec(
    data=DataSpec(task="box/subject-number", limit=48, max_length=64),
    train=TrainSpec(epochs=2, batch_size=16, lr=1e-3, evaluations=1, device="cpu", average="on"),
)


def test_what_is_scored_and_saved_is_the_mean_of_a_slow_loop(tmp_path: Path) -> None:
    """(1 + t) / (3 + t) of the mean stays in step t, so that it reaches back over about half of the steps."""
    slow: dict[str, torch.Tensor] = {}
    last: dict[str, torch.Tensor] = {}
    plain_step, plain_evaluate = _Loop._prepare, _Seed.evaluate
    asked = []

    def watching(loop: Any) -> None:
        share = 2 / (3 + loop.step)
        for name, weight in loop.inner.named_parameters():
            slow.setdefault(name, weight.detach().clone()).lerp_(weight.detach(), share)
        plain_step(loop)

    def asking(one: _Seed, current: Any) -> dict[str, float]:
        last.update({name: weight.detach().clone() for name, weight in current.named_parameters()})
        scores = plain_evaluate(one, current)
        asked.append(scores["accuracy"])
        return scores

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Loop, "_prepare", watching)
        patch.setattr(_Seed, "evaluate", asking)
        # Every evaluation counts more than the one before it, so that the last one is saved.
        patch.setattr("bermo.methods.finetune.handicap", lambda prepared, latest: -1000.0 * len(asked))
        result = finetune(ON, tmp_path / "run").seeds[0]
    assert result.best_step == result.steps
    saved = load_file(tmp_path / "run" / "model" / "model.safetensors")
    assert not [name for name in saved if "average" in name]
    for name, mean in slow.items():
        torch.testing.assert_close(saved[name], mean, msg=name)
    assert any(not torch.equal(saved[name], last[name]) for name in saved), "the mean is not the last weights"
    model = BermoForSequenceClassification.from_pretrained(tmp_path / "run" / "model")
    assert model.mix.weights.tolist() == pytest.approx(result.mix_weights, abs=1e-5)


def test_a_run_resumes_to_the_bit(tmp_path: Path) -> None:
    check_resumes_to_the_bit(ON, tmp_path, step=2)


@pytest.mark.parametrize(
    ("changes", "flag"),
    [
        ({"train": {"average": "on", "together": 2}}, "--together"),
        ({"prune": {"method": "magnitude", "density": 0.5}}, "--prune"),
        ({"method": {"quantize": "int8"}}, "--quantize"),
        ({"method": {"mixout": 0.5}}, "--mixout"),
        ({"method": {"keep_tokens": 0.5}}, "--keep-tokens"),
        ({"method": {"mix_path": "closes"}}, "--mix-path"),
        ({"method": {"theseus": 2}, "distill": {"teacher": "runs/dense"}}, "--theseus"),
    ],
)
def test_methods_that_move_weights_themselves_are_refused(
    changes: dict[str, dict[str, object]], flag: str
) -> None:
    spec = replace_in(replace_in(RunSpec(), train={"average": "on"}), **changes)
    with pytest.raises(BermoError, match=f"cannot be kept with {flag}"):
        check_methods(check(spec))
