"""Rows with several labels from a user's file to an export: trained, taught, pruned, evaluated, answered."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from bermo.cli import main
from bermo.runs.trained import open_trained
from bermo.ship.export.compare import same_answers
from tests import tiny

pytestmark = pytest.mark.usefixtures("shallow_box")

SMALL = "--max-length 16 --epochs 1 --batch-size 16 --device cpu"
WORDS = {"good": "praise", "bad": "blame", "cat": "animals", "film": "art"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts whose labels are told by their words."""
    root = tmp_path_factory.mktemp("labels")
    random = np.random.default_rng(0)
    lines = ["text,topics"]
    for number in range(72):
        has = [word for word, keep in zip(WORDS, random.random(4) < 0.5, strict=True) if keep]
        labels = "|".join(WORDS[word] for word in has)
        lines.append(f"the {' '.join(has)} {number},{labels}")
    for name, part in (("my.csv", lines[:49]), ("dev.csv", lines[:1] + lines[49:])):
        (root / name).write_text("\n".join(part) + "\n")
    return root


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    """A trained run."""
    assert main(train(folder, "run")) == 0
    return folder / "run"


def train(folder: Path, out: str, *more: str) -> list[str]:
    files = ["--train", str(folder / "my.csv"), "--valid", str(folder / "dev.csv"), "--label", "topics"]
    return ["train", *files, "--out", str(folder / out), *SMALL.split(), *more]


def test_a_file_with_several_labels_trains_and_says_so(run: Path) -> None:
    task = json.loads((run / "model" / "task.json").read_text())
    assert task["kind"] == "multi-label"
    assert task["labels"] == ["animals", "art", "blame", "praise"]
    config = json.loads((run / "model" / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification"
    result = json.loads((run / "result.json").read_text())
    assert result["metric"] == "micro_f1"
    assert set(result["seeds"][0]["values"]) >= {"micro_f1", "macro_f1", "subset_accuracy"}
    assert result["mean"] > 60, "words tell the labels, and the head starts as a probe of them"


def test_it_is_evaluated_and_answers_with_every_label_over_one_half(
    run: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "test.json"
    assert main(["evaluate", str(run), str(folder / "dev.csv"), "--out", str(out)]) == 0
    written = json.loads(out.read_text())
    assert written["score"] == pytest.approx(json.loads((run / "result.json").read_text())["mean"])
    assert [item["name"] for item in written["classes"]] == written["labels"]
    assert "label" in capsys.readouterr().out
    text = ["--text", "the good film", "--text", "the bad cat"]
    assert main(["predict", str(run), *text, "--out", str(tmp_path / "a.csv")]) == 0
    assert (tmp_path / "a.csv").read_text().startswith("labels,probability\n")
    assert main(["predict", str(run), *text, "--probabilities"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for answer in answers:
        over = {name for name, p in answer["probabilities"].items() if p > 0.5}
        assert over == set(answer["labels"])


def test_a_taught_and_pruned_student_is_exported_and_evaluated(run: Path, folder: Path) -> None:
    pruned = ["--prune", "movement", "--density", "0.5", "--prune-warmup", "1", "--epochs", "1"]
    assert main(train(folder, "taught", "--teacher", str(run), *pruned)) == 0
    out, test = folder / "sparse", str(folder / "dev.csv")
    command = ["export", str(folder / "taught"), "--to", "sparse", "--values", "fp32", "--data", test]
    assert main([*command, "--out", str(out)]) == 0
    record = json.loads((out / "export.json").read_text())
    assert record["compared"]["score_after"] == pytest.approx(record["compared"]["score_before"])
    assert main(["evaluate", str(out), test]) == 0


def test_a_teacher_of_other_labels_is_refused(
    run: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = (folder / "my.csv").read_text().replace("praise", "applause")
    (tmp_path / "my.csv").write_text(rows)
    files = [
        "--train",
        str(tmp_path / "my.csv"),
        "--split",
        "0.3",
        "--label",
        "topics",
        "--teacher",
        str(run),
    ]
    assert main(["train", *files, "--teacher", str(run), "--out", str(tmp_path / "run"), *SMALL.split()]) == 2
    assert "They must be the same in the same order" in capsys.readouterr().err


def test_a_plain_model_of_transformers_says_by_its_config_that_labels_are_several(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = BertConfig(**tiny.SIZES, num_labels=3, problem_type="multi_label_classification")
    BertForSequenceClassification(config).save_pretrained(tmp_path)
    tiny.make_tokenizer().save_pretrained(tmp_path)
    assert open_trained(tmp_path).trained.task.kind == "multi-label"


def test_an_export_is_compared_label_by_label() -> None:
    before, after = [np.array([1.0, 2.0, -1.0])], [np.array([2.0, 1.0, 0.5])]
    assert same_answers(after, before, "multi-label") == pytest.approx(2 / 3)
    assert same_answers(after, before, "classification") == 0.0
