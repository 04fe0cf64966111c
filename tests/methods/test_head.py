"""A model starts as the linear probe of its frozen encoder, and a run never ends below that."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from bermo.data.batches import in_order
from bermo.files import without_seal, write_sealed
from bermo.methods import head as head_module
from bermo.methods.assemble import assemble
from bermo.methods.evaluate import predict
from bermo.methods.finetune import finetune
from bermo.methods.head import _head_inputs, _standardise_, choose_reading
from bermo.methods.prepare import Prepared, build_model, prepare
from bermo.nn.heads import Scale
from bermo.nn.linear_fit import fit_linear
from bermo.progress import Quiet
from bermo.spec import DataSpec, MixSpec, RunSpec, TrainSpec, replace_in
from bermo.training.devices import make_accelerator
from bermo.values import to_dict

TINY = RunSpec(
    data=DataSpec(task="box/subject-number", limit=48, max_length=64),
    train=TrainSpec(epochs=2, batch_size=16, lr=1e-3, device="cpu"),
)

pytestmark = pytest.mark.usefixtures("shallow_box", "whole_fits")


def at_start(spec: RunSpec, folder: Path) -> tuple[Prepared, torch.Tensor, torch.Tensor]:
    """What a model's last layer reads of all training rows before the first step, and what it answers."""
    accelerator = make_accelerator(spec.train, folder)
    prepared = choose_reading(prepare(spec, Quiet()), accelerator)
    model = assemble(prepared, 1, Quiet(), accelerator).model
    read: list[torch.Tensor] = []
    model.head.out.register_forward_pre_hook(lambda module, inputs: read.append(inputs[0]))
    order = np.concatenate(in_order(prepared.train, 8))
    answers = torch.from_numpy(np.stack(predict(model, prepared.train, 8, accelerator)))
    return prepared, torch.cat(read)[np.argsort(order)], answers


@pytest.mark.parametrize("mix", ["across", "none", "concat-last-four"])
def test_before_the_first_step_the_answers_are_those_of_the_fitted_probe(tmp_path: Path, mix: str) -> None:
    spec = replace_in(TINY, model={"mix": MixSpec(kind=mix)})  # type: ignore[arg-type]
    prepared, read, answers = at_start(spec, tmp_path)
    fitted = fit_linear(read, torch.from_numpy(np.array(prepared.train.targets)), num_classes=2)
    expected = read.double() @ fitted.weight_CD.T + fitted.bias_C
    assert torch.allclose(answers.double(), expected, atol=1e-3)
    assert expected.std() > 0.01


def test_a_run_keeps_the_score_of_the_frozen_probe_and_never_ends_below_it(tmp_path: Path) -> None:
    result = finetune(replace_in(TINY, train={"lr": 0.5, "warmup": 0.0}), tmp_path).seeds[0]
    rows = [json.loads(line) for line in (tmp_path / "seed-1" / "metrics.jsonl").read_text().splitlines()]
    assert rows[0]["step"] == 0
    assert rows[0]["valid/accuracy"] == result.frozen_score
    assert result.score >= result.frozen_score > result.last_score
    assert result.best_step == 0
    assert (tmp_path / "model").is_dir()


def test_a_random_head_is_not_scored_before_the_first_step(tmp_path: Path) -> None:
    result = finetune(replace_in(TINY, model={"head": "random"}), tmp_path).seeds[0]
    assert np.isnan(result.frozen_score)
    assert "frozen_score" in json.loads((tmp_path / "seed-1" / "result.json").read_text())


@pytest.mark.parametrize("task", ["box/arguments", "box/answer"])
def test_tags_start_from_a_probe_of_their_tokens_and_spans_at_random(tmp_path: Path, task: str) -> None:
    spec = replace_in(TINY, data={"task": task})
    prepared = prepare(spec, Quiet())
    assert prepared.spec.model.head == ("probe" if task == "box/arguments" else "random")
    if task == "box/arguments":
        accelerator = make_accelerator(spec.train, tmp_path)
        model = assemble(prepared, 1, Quiet(), accelerator).model
        logits = np.concatenate(predict(model, prepared.train, 8, accelerator))
        targets = np.asarray(prepared.train.targets)
        is_right = logits.argmax(1)[targets >= 0] == targets[targets >= 0]
        common = np.bincount(targets[targets >= 0]).max() / (targets >= 0).sum()
        assert is_right.mean() > common


def test_numbers_start_from_ridge_regression(tmp_path: Path) -> None:
    rows = [f"{'a dog runs ' * (k % 4 + 1)}\t{k % 4 + 3.25 + k / 1000}" for k in range(24)]
    (tmp_path / "numbers.tsv").write_text("text\tscore\n" + "\n".join(rows) + "\n")
    file = str(tmp_path / "numbers.tsv")
    spec = replace(TINY, data=DataSpec(train=file, valid=file, max_length=32))
    prepared, _, answers = at_start(spec, tmp_path)
    assert answers[:, 0].numpy() == pytest.approx(np.asarray(prepared.train.targets), abs=0.2)


def test_an_open_pooling_is_chosen_by_the_probe_and_the_folder_keeps_it(tmp_path: Path) -> None:
    finetune(TINY, tmp_path)
    model = json.loads((tmp_path / "spec.json").read_text())["spec"]["model"]
    assert model["pooling"] in ("first", "mean")
    assert model["head"] == "probe"
    saved = json.loads((tmp_path / "model" / "config.json").read_text())
    assert saved["pooling"] == model["pooling"]


def test_the_same_open_command_again_goes_on_with_what_was_chosen(tmp_path: Path) -> None:
    first = finetune(TINY, tmp_path)
    values = json.loads((tmp_path / "spec.json").read_text())
    other = {"first": "mean", "mean": "first"}[values["spec"]["model"]["pooling"]]
    values["spec"]["model"]["pooling"] = other
    write_sealed(tmp_path / "spec.json", without_seal(values))
    again = finetune(replace(TINY, seeds=(1, 2)), tmp_path)
    assert again.seeds[0] == first.seeds[0]
    saved = json.loads((tmp_path / "seed-2" / "model" / "config.json").read_text())
    assert saved["pooling"] == other
    assert to_dict(TINY)["model"]["pooling"] is None


def test_the_pooling_of_an_encoder_of_random_weights_does_not_depend_on_earlier_draws(tmp_path: Path) -> None:
    accelerator, prepared = make_accelerator(TINY.train, tmp_path), prepare(TINY, Quiet())
    chosen = []
    for seed in range(3):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        chosen.append(choose_reading(prepared, accelerator).reasons[-1])
        assert torch.equal(torch.get_rng_state(), before)
    assert len(set(chosen)) == 1, chosen


@pytest.mark.parametrize("factory", [lambda: torch.nn.Linear(6, 6), lambda: Scale(6)])
def test_a_unit_that_is_the_same_for_all_texts_is_not_blown_up(
    factory: Callable[[], torch.nn.Linear | Scale],
) -> None:
    layer = factory()
    x = torch.randn(50, 6, generator=torch.manual_seed(0)) * torch.tensor([1.0, 2.0, 1e-9, 3.0, 0.0, 0.05])
    x[:, 2] += 7
    _standardise_(layer, x)
    with torch.no_grad():
        read, moved = layer(x), layer(x + 0.1)
    assert torch.allclose(read.std(0, correction=0)[[0, 1, 3, 5]], torch.tensor(0.5))
    assert torch.allclose(read[:, [2, 4]], torch.zeros(50, 2), atol=1e-5)
    # What a unit moves by in training is of the size of the others.
    assert (moved - read)[:, [2, 4]].max() <= (moved - read).median(0).values.max()


@pytest.mark.parametrize("pairs", [None, "apart"])
def test_one_pass_reads_by_each_pooling_what_a_pass_for_each_reads(tmp_path: Path, pairs: str | None) -> None:
    (tmp_path / "pairs.tsv").write_text(
        "first\tsecond\tlabel\n"
        + "".join(f"a dog {'runs ' * (k % 5)}\tthe cat {k}\t{'yes' if k % 2 else 'no'}\n" for k in range(24))
    )
    file = str(tmp_path / "pairs.tsv")
    own = DataSpec(train=file, valid=file, text=("first", "second"), max_length=32)
    spec = replace_in(replace(TINY, data=own) if pairs else TINY, model={"mix": MixSpec(kind="none")})
    prepared = prepare(replace_in(spec, model={"pairs": pairs or "joined", "pooling": None}), Quiet())
    accelerator = make_accelerator(spec.train, tmp_path)
    model = build_model(prepared)
    whole, targets = _head_inputs(model, prepared.train, 20, 8, accelerator, ("first", "mean"))
    for pooling, read in zip(("first", "mean"), whole, strict=True):
        (alone,), same = _head_inputs(model, prepared.train, 20, 8, accelerator, (pooling,))
        assert torch.equal(read, alone)
        assert torch.equal(targets, same)
    assert not torch.equal(*whole)


@pytest.mark.parametrize("poolings", [(), ("mean",), ("first", "mean")])
def test_the_model_is_on_the_device_while_it_is_read_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, poolings: tuple[str, ...]
) -> None:
    prepared = prepare(replace_in(TINY, model={"pooling": "mean"}), Quiet())
    model, events = build_model(prepared), list[str]()
    monkeypatch.setattr(model, "to", lambda device: (events.append(str(device)), model)[1])

    def read(*arguments: Any, **options: Any) -> list[np.ndarray]:
        events.append("read")
        return [np.zeros(2, np.float32)] * 20

    monkeypatch.setattr(head_module, "predict", read)
    there: Any = SimpleNamespace(device="cuda:0")
    _head_inputs(model, prepared.train, 20, 8, there, poolings)  # type: ignore[arg-type]
    assert events == ["cuda:0", "read", "cpu"]


@pytest.mark.gpu
def test_a_training_by_the_defaults_runs_on_a_gpu(tmp_path: Path) -> None:
    result = finetune(replace_in(TINY, train={"device": "cuda", "precision": "bf16"}), tmp_path).seeds[0]
    assert result.score >= result.frozen_score


def test_many_rows_get_a_quick_probe_that_reads_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, read, answers = at_start(TINY, tmp_path)
    monkeypatch.setattr(head_module, "FEW_ROWS", 48)
    quick, _, others = at_start(TINY, tmp_path)
    targets = torch.from_numpy(np.array(slow.train.targets))
    losses = [torch.nn.functional.cross_entropy(found, targets) for found in (answers, others)]
    assert not torch.equal(*losses)
    assert losses[1] < losses[0] + 0.2
    assert quick.spec.model.pooling == slow.spec.model.pooling
    assert len(read) == 48
