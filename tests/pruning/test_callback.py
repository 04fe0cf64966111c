"""Pruning inside transformers.Trainer: the density, masks after a resume, whole units."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

from bermo.errors import BermoError
from bermo.pruning.callback import PruningCallback
from bermo.pruning.criteria import L0, Method, Movement, SoftMovement
from bermo.pruning.fold import count
from bermo.pruning.pruner import Pruner
from bermo.pruning.schedule import CubicSchedule
from bermo.pruning.units import prune_units_
from bermo.pruning.weights import prune_
from bermo.training.groups import parameter_groups
from tests.small_models import batch_of, model_of


def trained(
    pruner: Pruner, model: nn.Module, folder: Path, steps: int, save_steps: int | None = None, start: str = ""
) -> None:
    """Train a model with its masks; from a checkpoint on, if `start` is one."""
    train_with(parameter_groups(model, 1e-4), pruner, model, folder, steps, save_steps, start)


def train_with(
    groups: list[dict[str, Any]] | None,
    pruner: Pruner,
    model: nn.Module,
    folder: Path,
    steps: int,
    save_steps: int | None = None,
    start: str = "",
) -> None:
    """Train with an optimiser of these groups, or with Trainer's own."""
    row = {key: value[0] for key, value in batch_of(model).items()} | {"labels": 1}
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        save_strategy="no" if save_steps is None else "steps",
        save_steps=save_steps or 500,
        per_device_train_batch_size=2,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    optimizer = None if groups is None else torch.optim.AdamW(groups)
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=[row] * 16,
        callbacks=[PruningCallback(pruner)],
        optimizers=(optimizer, None),
    )
    trainer.train(resume_from_checkpoint=start or None)


@pytest.mark.parametrize("family", ["bert", "gpt2", "modernbert"])
@pytest.mark.parametrize("method", [Movement(density=0.1), SoftMovement(penalty=5.0)], ids=str)
def test_transformers_trainer_with_the_callback_reaches_the_density(
    family: str, method: Method, tmp_path: Path
) -> None:
    model = model_of(family).train()
    pruner = prune_(model, method, CubicSchedule(total_steps=12, warmup_steps=2))
    trained(pruner, model, tmp_path, steps=12)
    assert pruner.num_steps == 12
    if isinstance(method, Movement):
        assert pruner.density == pytest.approx(0.1, abs=0.005)
    assert all(score.abs().sum() > 0 for score in pruner.score_parameters())


def test_an_optimiser_under_which_the_scores_hardly_move_is_refused(tmp_path: Path) -> None:
    model = model_of("bert").train()
    pruner = prune_(model, Movement(density=0.1, rank="score"), CubicSchedule(total_steps=4, warmup_steps=1))
    with pytest.raises(BermoError, match="at the rate of the weights, 5e-05, at which they hardly move"):
        train_with(None, pruner, model, tmp_path, steps=4)
    with pytest.raises(BermoError, match="does not train the scores of the masks"):
        train_with([{"params": model.head.parameters()}], pruner, model, tmp_path, steps=4)
    assert pruner.num_steps == 0


@pytest.mark.parametrize("method", [Movement(density=0.5, rank="score"), L0(penalty=5.0)], ids=str)
def test_whole_units_are_pruned_by_the_same_callback(method: Method, tmp_path: Path) -> None:
    model = model_of("bert").train()
    pruner = prune_units_(model, method, CubicSchedule(total_steps=6, warmup_steps=1))
    start = [scores.detach().clone() for scores in pruner.score_parameters()]
    trained(pruner, model, tmp_path, steps=6)
    assert pruner.num_steps == 6
    if isinstance(method, Movement):
        assert pruner.density == pytest.approx(0.5, abs=0.02)
    for scores, before in zip(pruner.score_parameters(), start, strict=True):
        assert not torch.equal(scores.detach(), before)


@pytest.mark.parametrize("method", [Movement(density=0.1, rank="score"), L0(density=0.5)], ids=str)
def test_transformers_trainer_goes_on_from_its_checkpoint_to_the_same_masks(
    method: Method, tmp_path: Path
) -> None:
    pruners = []
    for start in ("", str(tmp_path / "checkpoint-4")):
        torch.manual_seed(1)
        model = model_of("bert").eval()
        pruner = prune_(model, method, CubicSchedule(total_steps=8, warmup_steps=1))
        trained(pruner, model, tmp_path, steps=8, save_steps=4, start=start)
        pruners.append(pruner)
    whole, resumed = pruners
    assert whole.num_steps == resumed.num_steps == 8
    for one, other in zip(whole.masks, resumed.masks, strict=True):
        assert torch.equal(one.mask, other.mask)
        torch.testing.assert_close(one.scores, other.scores)


@pytest.mark.parametrize("prune", [prune_, prune_units_])
def test_every_checkpoint_of_trainer_loads_as_what_the_pruned_model_computed(
    prune: Any, tmp_path: Path
) -> None:
    model = model_of("bert").train()
    pruner = prune(model, Movement(density=0.5, rank="score"), CubicSchedule(total_steps=4, warmup_steps=1))
    trained(pruner, model, tmp_path, steps=4, save_steps=4)
    batch = batch_of(model)
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "checkpoint-4")
    assert torch.equal(again(**batch).logits, model.eval()(**batch).logits)
    assert count(again) == count(model)
