"""A spec becomes trained models: it learns, it resumes to the bit, it says when it collapsed."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from bermo.cli import main
from bermo.errors import BermoError
from bermo.methods.finetune import finetune
from bermo.progress import Quiet
from bermo.spec import DataSpec, MixSpec, ModelSpec, RunSpec, TrainSpec, replace_in

TINY = RunSpec(
    data=DataSpec(task="box/tense", limit=48, max_length=64),
    train=TrainSpec(epochs=2, batch_size=16, lr=1e-3, device="cpu"),
)

pytestmark = pytest.mark.usefixtures("shallow_box")


class Ear(Quiet):
    """A display that keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def tell(self, sentence: str) -> None:
        self.said.append(sentence)


def test_a_run_leaves_spec_metrics_result_and_a_model_that_reloads(tmp_path: Path) -> None:
    result = finetune(TINY, tmp_path / "run")
    names = {p.name for p in (tmp_path / "run").iterdir()}
    assert names == {"spec.json", "result.json", "model", "seed-1", ".lock"}
    assert {p.name for p in (tmp_path / "run" / "seed-1").iterdir()} == {
        "metrics.jsonl",
        "result.json",
        "model",
    }
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run" / "model")
    assert model.config.id2label == {0: "past", 1: "present"}
    assert sum(result.seeds[0].mix_weights) == pytest.approx(1.0, abs=1e-5)
    assert 0 <= result.seeds[0].padding_share < 0.5
    assert len(result.seeds[0].mix_weights) == model.config.num_hidden_layers + 1
    looks = [row for row in _metrics(tmp_path / "run") if "valid/accuracy" in row]
    assert max(row["valid/accuracy"] for row in looks) == result.seeds[0].score
    by_layer = [
        [row[f"gradient/layer.{index}"] for index in range(1, model.config.num_hidden_layers + 1)]
        for row in _metrics(tmp_path / "run")
        if "loss" in row
    ]
    assert all(0 < value < math.inf for row in by_layer for value in row)


def test_the_shares_of_the_mix_are_those_of_the_model_that_is_kept(tmp_path: Path) -> None:
    result = finetune(replace_in(TINY, train={"lr": 0.1, "mix_lr": 0.1}), tmp_path / "run")
    seed = result.seeds[0]
    assert seed.best_step < seed.steps
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run" / "model")
    assert seed.mix_weights == pytest.approx(model.mix.weights.tolist(), abs=1e-5)


@pytest.mark.usefixtures("real_box")
def test_the_encoder_in_the_box_learns_its_task(tmp_path: Path) -> None:
    spec = replace_in(TINY, data={"limit": 64, "task": "box/subject-number"}, train={"lr": 5e-4})
    result = finetune(spec, tmp_path / "run")
    assert result.num_diverged == 0
    assert result.mean > 65


def test_the_same_command_again_does_nothing_and_more_seeds_add_to_it(tmp_path: Path) -> None:
    first = finetune(TINY, tmp_path)
    before = (tmp_path / "seed-1" / "result.json").stat().st_mtime_ns
    ear = Ear()
    again = finetune(replace(TINY, seeds=(1, 2)), tmp_path, ear)
    assert f"Trained before, and not again: seed 1 of {tmp_path}." in ear.said
    assert (tmp_path / "seed-1" / "result.json").stat().st_mtime_ns == before
    assert again.seeds[0] == first.seeds[0]
    assert [seed.seed for seed in again.seeds] == [1, 2]
    assert again.seeds[0].loss != again.seeds[1].loss


def test_a_folder_of_another_run_is_refused_before_any_work(tmp_path: Path) -> None:
    finetune(TINY, tmp_path)
    with pytest.raises(BermoError, match="holds another run"):
        finetune(replace_in(TINY, train={"lr": 5e-4}), tmp_path)


def test_a_run_that_collapses_is_marked_diverged_with_a_reason(tmp_path: Path) -> None:
    ear = Ear()
    spec = replace_in(TINY, train={"lr": 1.0, "warmup": 0.0, "clip": 0.0})
    result = finetune(spec, tmp_path, ear)
    assert result.num_diverged == 1
    assert result.seeds[0].diverged is not None
    assert any("diverged" in sentence and "--lr" in sentence for sentence in ear.said)


def test_a_collapsed_run_can_be_given_up_early(tmp_path: Path) -> None:
    train = {"lr": 3.0, "warmup": 0.0, "clip": 0.0, "epochs": 4.0}
    whole = finetune(replace_in(TINY, train=train), tmp_path / "whole")
    short = finetune(replace_in(TINY, train=train | {"give_up": 1}), tmp_path / "short")
    assert whole.num_diverged == short.num_diverged == 1
    assert short.seeds[0].steps < whole.seeds[0].steps
    assert "every prediction" in str(short.seeds[0].diverged)


@pytest.mark.parametrize("task", ["box/arguments", "box/answer", "box/ending", "box/coordination-inversion"])
def test_every_kind_of_task_trains(tmp_path: Path, task: str) -> None:
    result = finetune(replace_in(TINY, data={"task": task}, train={"epochs": 1}), tmp_path)
    assert 0 <= result.seeds[0].score <= 100


def test_pairs_and_regression_train_from_a_users_file(tmp_path: Path) -> None:
    rows = [f"a dog runs\ta cat sleeps\t{k / 7:.2f}" for k in range(24)]
    file = tmp_path / "pairs.tsv"
    file.write_text("sentence1\tsentence2\tscore\n" + "\n".join(rows) + "\n")
    data = DataSpec(train=str(file), valid=str(file), max_length=32)
    result = finetune(replace(TINY, data=data), tmp_path / "run")
    assert result.metric == "mean"


def test_one_file_alone_trains_and_its_run_is_known_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f"the {'dog' if k % 2 else 'cat'} number {k} runs,{k % 2}" for k in range(40)]
    (tmp_path / "my.csv").write_text("text,label\n" + "\n".join(rows))
    monkeypatch.chdir(tmp_path)
    spec = replace(TINY, data=DataSpec(train="my.csv", split=0.25, max_length=32))
    first = finetune(spec, "run")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = finetune(replace_in(spec, data={"train": "../my.csv"}), "../run")
    assert again.seeds == first.seeds


def test_the_plain_encoder_is_the_same_network_without_a_mix(tmp_path: Path) -> None:
    plain = replace(TINY, model=ModelSpec(mix=MixSpec(kind="none")))
    sizes = [
        finetune(spec, tmp_path / name).seeds[0].num_parameters
        for name, spec in (("plain", plain), ("mix", TINY))
    ]
    assert sizes[1] - sizes[0] == 4 + 1


COMMAND = (
    "train --task box/tense --limit 320 --epochs 3 --batch-size 8 --lr 1e-3 --max-length 64 --device cpu"
)


@pytest.fixture
def one_thread() -> None:
    """Compute as a process with OMP_NUM_THREADS=1 does, to the bit."""
    torch.set_num_threads(1)


def _metrics(folder: Path) -> list[dict[str, float]]:
    text = (folder / "seed-1" / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.usefixtures("warm_python", "whole_fits")
def test_two_processes_of_the_command_give_the_losses_and_scores_of_one(
    tmp_path: Path, small_encoder: Path
) -> None:
    options = [
        "train",
        "--model",
        str(small_encoder),
        "--task",
        "box/tense",
        "--limit",
        "50",
        "--epochs",
        "2",
        "--batch-size",
        "16",
        "--lr",
        "1e-3",
        "--device",
        "cpu",
        "--max-length",
        "64",
        "--contrast",
        "1",
    ]
    launch = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    launch += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    launch += ["--main_process_port", "0", "-m", "bermo"]
    command = [sys.executable, *launch, *options, "--out", str(tmp_path / "two")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("The model is in") == 1
    assert main([*options, "--out", str(tmp_path / "one")]) == 0
    one, two = (_metrics(tmp_path / name) for name in ("one", "two"))
    losses = [[row["loss"] for row in rows if "loss" in row] for rows in (one, two)]
    # Random weights give nearly parallel vectors, whose cosines lose digits when summed in another order.
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
    scores = [[row["valid/accuracy"] for row in rows if "valid/accuracy" in row] for rows in (one, two)]
    assert scores[0] == pytest.approx(scores[1], abs=100 / 48 + 0.01)


def test_the_first_layers_alone_are_trained_and_no_model_is_kept(tmp_path: Path) -> None:
    spec = replace_in(TINY, model={"first_layers": 2}, train={"keep": "none"})
    whole, short = (finetune(one, tmp_path / name) for name, one in (("a", TINY), ("b", spec)))
    assert short.seeds[0].mix_layers == [0, 1, 2]
    assert short.seeds[0].num_parameters < whole.seeds[0].num_parameters
    assert (tmp_path / "a" / "model").exists()
    assert not list((tmp_path / "b").rglob("model"))
    with pytest.raises(BermoError, match="first-layers must be at least 1"):
        finetune(replace_in(TINY, model={"first_layers": 0}), tmp_path / "c")
