"""Thresholds: the best by trying all, kept in the head's bias, so that every reader decides by them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from bermo.cli import main
from bermo.data.load import load_task
from bermo.errors import BermoError
from bermo.methods.finetune import finetune
from bermo.methods.thresholds import _best_of_label, check_thresholds, shifted
from bermo.spec import DataSpec, RunSpec, TrainSpec, replace_in
from tests.methods.resumed import check_resumes_to_the_bit

pytestmark = pytest.mark.usefixtures("shallow_box")


def write(folder: Path, count: int = 72) -> Path:
    random = np.random.default_rng(0)
    path = folder / "my.jsonl"
    rows = []
    for number in range(count):
        has = [word for word, share in (("cat", 0.5), ("film", 0.2), ("tea", 0.9)) if random.random() < share]
        # A third of the texts do not tell their labels.
        told = " ".join(has) if random.random() < 0.7 else "thing"
        rows.append({"text": f"the {told} {number}", "label": has})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def spec_of(path: Path) -> RunSpec:
    return RunSpec(
        data=DataSpec(train=str(path), valid=str(path), max_length=16),
        train=TrainSpec(epochs=1, batch_size=24, lr=1e-4, device="cpu", tune_thresholds=True),
    )


def f1(given: np.ndarray, gold: np.ndarray) -> float:
    total = int(given.sum() + gold.sum())
    return 2 * int((given & gold).sum()) / total if total else 0.0


@pytest.mark.parametrize("seed", range(5))
def test_the_threshold_of_a_label_is_the_best_of_all(seed: int) -> None:
    random = np.random.default_rng(seed)
    gold = random.random(60) < 0.3
    logits = np.round(random.normal(size=60) + gold, 1)
    found = _best_of_label(logits, gold)
    tried = [f1(logits > value, gold) for value in np.arange(-4, 4, 0.025)]
    assert f1(logits > found, gold) == pytest.approx(max(tried))


def test_a_label_of_few_rows_keeps_one_half() -> None:
    assert _best_of_label(np.linspace(-1, 1, 20), np.arange(20) > 16) == 0


def test_a_shift_leaves_no_trace() -> None:
    model = nn.Module()
    model.head = nn.Module()
    model.head.out = nn.Linear(3, 2)
    bias = model.head.out.bias
    before = bias.detach().clone()
    with shifted(model, np.array([0.3, -0.7])):
        assert torch.allclose(bias, before + torch.tensor([0.3, -0.7]))
    assert torch.equal(bias, before)
    with shifted(nn.Module(), None):
        pass


def test_a_saved_model_decides_by_its_thresholds_and_scores_no_less(tmp_path: Path) -> None:
    path = write(tmp_path)
    tuned = finetune(spec_of(path), tmp_path / "tuned").seeds[0]
    plain_spec = replace_in(spec_of(path), train={"tune_thresholds": False})
    plain = finetune(plain_spec, tmp_path / "plain").seeds[0]
    assert tuned.values["macro_f1"] >= plain.values["macro_f1"]
    assert main(["evaluate", str(tmp_path / "tuned"), str(path), "--out", str(tmp_path / "said.json")]) == 0
    said = json.loads((tmp_path / "said.json").read_text())
    assert said["values"]["micro_f1"] == pytest.approx(tuned.score, abs=1e-6)


def test_two_classes_have_one_threshold(tmp_path: Path) -> None:
    path = tmp_path / "my.csv"
    rows = [
        f"a {'good' if number % 4 else 'bad'} film {number},{'no' if number % 5 else 'yes'}"
        for number in range(60)
    ]
    path.write_text("text,label\n" + "\n".join(rows) + "\n")
    spec = replace_in(spec_of(path), data={"metric": "f1"})
    done = finetune(spec, tmp_path / "run").seeds[0]
    # Yes for everything gives 2 · 12 / (60 + 12).
    assert done.metric == "f1"
    assert done.score >= 100 * 24 / 72 - 1e-6


def test_a_run_that_is_stopped_ends_in_the_same_bits(tmp_path: Path) -> None:
    spec = replace_in(spec_of(write(tmp_path)), train={"epochs": 2})
    check_resumes_to_the_bit(spec, tmp_path, step=2)


def test_three_classes_have_no_threshold(tmp_path: Path) -> None:
    path = tmp_path / "my.csv"
    path.write_text("text,label\n" + "\n".join(f"text {n},{'abc'[n % 3]}" for n in range(30)) + "\n")
    data = load_task(DataSpec(train=str(path), valid=str(path)))
    with pytest.raises(BermoError, match="not for 3 classes"):
        check_thresholds(True, data)
    check_thresholds(False, data)
