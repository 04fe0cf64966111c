"""A metric of the user's own chooses the best model, is reported, belongs to the run, and is never run again
because a folder names it.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bermo
from bermo.cli import main
from bermo.data.load import load_task
from bermo.errors import BermoError
from bermo.files import read_sealed, write_sealed
from bermo.methods.finetune import finetune
from bermo.runs.folder import read_run_spec
from bermo.spec import DataSpec, ModelSpec, RunSpec, TrainSpec, replace_in
from tests.methods.resumed import check_resumes_to_the_bit

pytestmark = [
    pytest.mark.usefixtures("shallow_box", "quick_traces"),
    pytest.mark.filterwarnings("ignore:Seed "),
]

# It leaves a mark wherever it is run, and wants as many wrong answers as can be.
MINE = """
from pathlib import Path

def cost(truth, answers):
    with Path(__file__).with_name("ran.txt").open("a") as file:
        file.write("x")
    return -3.0 * sum(a == b for a, b in zip(truth, answers))
"""
OPTIONS = ["--epochs", "2", "--batch-size", "16", "--max-length", "16", "--lr", "1e-3", "--device", "cpu"]
OPTIONS += ["--contrast", "0", "--pooling", "mean"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [f"the {'cat' if k % 2 else 'dog'} {k},{'c' if k % 2 else 'd'}" for k in range(40)]
    (tmp_path / "my.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


def train(home: Path) -> int:
    files = ["--train", "my.csv", "--valid", "my.csv", "--metric", "mine.py:cost", "--out", "run"]
    return main(["train", *files, *OPTIONS])


def test_the_best_model_is_the_best_by_the_function(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(home) == 0
    assert "cost" in capsys.readouterr().out
    result = json.loads((home / "run" / "seed-1" / "result.json").read_text())
    assert result["metric"] == "cost"
    scores = [
        json.loads(line)["valid/cost"]
        for line in (home / "run" / "seed-1" / "metrics.jsonl").read_text().splitlines()
        if "valid/cost" in line
    ]
    assert result["score"] == max([*scores, result["frozen_score"]])
    assert result["score"] <= 0
    assert result["values"]["accuracy"] == pytest.approx(-result["score"] / 3 / 40 * 100)
    card = (home / "run" / "model" / "README.md").read_text()
    assert "name: cost" in card
    assert main(["evaluate", "run", "my.csv", "--metric", "mine.py:cost"]) == 0
    assert f"cost {result['score']:.2f} (95 % interval" in capsys.readouterr().out


def test_no_verb_runs_the_function_of_a_run_unless_it_is_typed(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(home) == 0
    (home / "ran.txt").unlink()
    assert read_run_spec(home / "run").data.metric is None
    for words in (
        ["evaluate", "run", "my.csv"],
        ["predict", "run", "--text", "the cat"],
        ["export", "run", "--to", "onnx", "--out", "exported"],
        ["shrink", "run", "--out", "small", "--fisher", "--density", "0.5", "--examples", "16"],
        ["report", "run", "--out", "page.html"],
    ):
        assert main(words) == 0, capsys.readouterr().err
        assert not (home / "ran.txt").exists(), words
    assert "cost" in (home / "page.html").read_text()
    (home / "mine.py").unlink()
    assert main(["evaluate", "run/model", "my.csv"]) == 0
    assert "accuracy" in capsys.readouterr().out


def test_the_function_belongs_to_the_run_wherever_it_is_typed_from(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(home) == 0
    (home / "sub").mkdir()
    monkeypatch.chdir(home / "sub")
    files = ["--train", "../my.csv", "--valid", "../my.csv", "--metric", "../mine.py:cost", "--out", "../run"]
    assert main(["train", *files, *OPTIONS]) == 0
    (home / "mine.py").write_text(MINE.replace("-3.0", "-4.0"))
    assert main(["train", *files, *OPTIONS]) == 2
    assert "../run has changed since it was started, or the metric's function" in " ".join(
        capsys.readouterr().err.split()
    )


def spec_of(home: Path) -> RunSpec:
    return RunSpec(
        data=DataSpec(train="my.csv", valid="my.csv", max_length=16, metric="mine.py:cost"),
        model=ModelSpec(head="random"),
        train=TrainSpec(epochs=2, batch_size=16, lr=1e-3, contrast=0.0, device="cpu"),
    )


def test_it_resumes_to_the_bit(home: Path) -> None:
    check_resumes_to_the_bit(spec_of(home), home, step=3)


def test_seeds_together_are_scored_each_by_itself(home: Path) -> None:
    spec = replace_in(spec_of(home), train={"together": 2})
    result = finetune(replace(spec, seeds=(1, 2)), home / "both")
    assert [seed.metric for seed in result.seeds] == ["cost", "cost"]


SMALL: dict[str, Any] = {"epochs": 1, "batch_size": 16, "max_length": 16, "device": "cpu", "head": "random"}
TEXTS = [f"the {'cat' if k % 2 else 'dog'} {k}" for k in range(40)]


def test_an_estimator_takes_a_function_and_gives_it_its_own_labels(home: Path) -> None:
    def profit(truth: list[bool], answers: list[bool]) -> float:
        assert {type(item) for item in (*truth, *answers)} == {bool}
        return float(sum(truth))

    fitted = bermo.Classifier("box", metric=profit, **SMALL).fit(TEXTS, [k % 2 == 1 for k in range(40)])
    assert fitted.result_.metric == "profit"
    assert fitted.get_params()["metric"] is profit
    fitted.save(home / "saved")
    loaded = bermo.Classifier.load(home / "saved")
    assert "metric" not in loaded.get_params()
    assert loaded.predict(TEXTS[:3]).tolist() == fitted.predict(TEXTS[:3]).tolist()


def test_a_regressor_takes_a_function(home: Path) -> None:
    def nearness(truth: list[float], answers: list[float]) -> float:
        return -max(abs(a - b) for a, b in zip(truth, answers, strict=True))

    fitted = bermo.Regressor("box", metric=nearness, **SMALL).fit(TEXTS, [k / 7 for k in range(40)])
    assert fitted.result_.metric == "nearness"


def test_an_estimators_file_names_no_function_that_is_run(home: Path) -> None:
    fitted = bermo.Classifier("box", **SMALL).fit(TEXTS, [k % 2 for k in range(40)])
    fitted.save(home / "saved")
    path = home / "saved" / "estimator.json"
    values = read_sealed(path)
    values["options"]["metric"] = "mine.py:cost"
    write_sealed(path, values)
    bermo.Classifier.load(home / "saved").fit(TEXTS, [k % 2 for k in range(40)])
    assert not (home / "ran.txt").exists()


def test_an_atlas_and_vectors_have_no_such_metric(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--train", "my.csv", "--valid", "my.csv", "--metric", "mine.py:cost"]
    assert main(["atlas", *files, "--out", "atlas"]) == 2
    assert "has a scale of its own" in " ".join(capsys.readouterr().err.split())
    (home / "pairs.csv").write_text("text1,text2,score\na cat,a dog,0.5\nthe cat,a dog,0.1\n")
    data = DataSpec(task="own/embedding", train="pairs.csv", valid="pairs.csv", metric="mine.py:cost")
    with pytest.raises(BermoError, match="metric of embedding is not chosen"):
        load_task(data)
