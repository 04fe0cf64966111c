"""bermo evaluate: the same scores for a model and its exports, and mistakes in the file."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from bermo.cli import main
from bermo.data.scoring import score
from bermo.figures.data import read_findings
from bermo.runs.trained import open_trained
from bermo.ship.export.run import ExportSpec, export
from bermo.ship.runtimes.candidate import answer, open_candidate
from bermo.ship.runtimes.texts import labelled
from tests.ship.folders import make_model, prune_randomly_, save, write_rows


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pruned model, an export of it as a sparse container, and a test file."""
    root = tmp_path_factory.mktemp("evaluate")
    model = make_model()
    prune_randomly_(model, 0.2)
    save(model, root / "model")
    write_rows(root / "test.tsv", 30)
    export(root / "model", root / "sparse", ExportSpec(to="sparse"))
    return root


def test_a_model_and_its_export_get_the_score_that_the_bench_gives(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = open_trained(folders / "model")
    features = labelled(opened, folders / "test.tsv")
    expected = score(features, answer(open_candidate(opened), features, 8))
    for name in ("model", "sparse"):
        out = tmp_path / f"{name}.json"
        command = ["evaluate", str(folders / name), str(folders / "test.tsv"), "--out", str(out)]
        assert main(command) == 0
        written = json.loads(out.read_text())
        assert written["score"] == pytest.approx(expected.score)
        assert written["labels"] == ["bad", "good"]
        assert np.sum(written["confusion"]) == written["num_rows"] == 30
        assert {item["name"] for item in written["classes"]} == {"bad", "good"}
        assert f"accuracy {expected.score:.2f} (95 % interval" in capsys.readouterr().out
        assert main(command) == 2
        assert "not overwritten" in capsys.readouterr().err


def test_errors_become_figures_of_a_page_beside_another_models_answers(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = make_model()
    torch.nn.init.normal_(other.head.out.weight)
    save(other, tmp_path / "other")
    look, out, page = tmp_path / "look", tmp_path / "test.json", tmp_path / "page.html"
    command = ["evaluate", str(tmp_path / "other"), str(folders / "test.tsv"), "--figures", str(look)]
    assert main([*command, "--against", str(folders / "model"), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    for words in ("Probabilities are ", "The surest of ", "answers became wrong", "taken for"):
        assert words in printed
    assert max(len(line) for line in printed.splitlines() if "/" not in line) <= 80
    written = json.loads(out.read_text())
    assert written["change"]["against"] == str(folders / "model")
    assert written["calibration"]["error"] > 0
    assert written["mistakes"][0]["probability"] >= written["mistakes"][-1]["probability"]
    titles = [section.title for section in read_findings(look / "figures.json").sections]
    assert titles == ["Classes", "Calibration", "Mistakes", "What changed"]
    assert main(["report", str(look), "--out", str(page)]) == 0
    assert "Right before, wrong now" in page.read_text()
    assert main(command) == 2
    assert "Give another name with --figures" in capsys.readouterr().err.replace("\n", " ")


def test_only_models_of_the_same_classes_are_compared(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(make_model(kind="regression"), tmp_path / "number", "regression")
    given = [("model", "number", "Compare models of the same classes"), ("number", "model", "right or wrong")]
    for name, other, words in given:
        run, against = (str((tmp_path if n == "number" else folders) / n) for n in (name, other))
        assert main(["evaluate", run, str(folders / "test.tsv"), "--against", against]) == 2
        assert words in capsys.readouterr().err.replace("\n", " ")
    figures = ["--figures", str(tmp_path / "look")]
    assert main(["evaluate", str(tmp_path / "number"), str(folders / "test.tsv"), *figures]) == 2
    assert "errors of classes" in capsys.readouterr().err.replace("\n", " ")


def test_an_unknown_label_is_an_error_with_the_nearest_or_counts_as_wrong(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "test.csv"
    path.write_text("text,label\na good film,good\na good film,Goood\na good film,Goood\n")
    command = ["evaluate", str(folders / "model"), str(path)]
    assert main(command) == 2
    said = capsys.readouterr().err
    assert 'the label "Goood" (2 times), which the model does not know. Did you mean "good"?' in said
    assert "--unknown wrong" in said
    assert main([*command, "--unknown", "wrong"]) == 0
    printed = capsys.readouterr().out
    assert 'Counted as wrong, since the model cannot give them: "Goood"' in printed


def test_rows_without_a_text_are_left_out_counted_and_named(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "test.csv", tmp_path / "test.json"
    path.write_text("text,label\na good film,good\n,bad\na bad film,bad\n  ,good\n")
    assert main(["evaluate", str(folders / "model"), str(path), "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert "test.csv: 2 of 4 rows have no text and are left out (line 3, line 5)" in printed.err
    assert "test.csv: 2 rows" in printed.out
    written = json.loads(out.read_text())
    assert (written["num_rows"], written["num_empty"]) == (2, 2)
    path.write_text("text,label\n,bad\n")
    assert main(["evaluate", str(folders / "model"), str(path)]) == 2
    assert "has no text that is not empty" in capsys.readouterr().err


def test_columns_are_those_of_training_or_named(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "test.csv"
    path.write_text("words,stars,label\na good film,good,other\na bad film,bad,other\n")
    command = ["evaluate", str(folders / "model"), str(path)]
    assert main([*command, "--text", "words", "--label", "stars"]) == 0
    assert "2 rows" in capsys.readouterr().out
    assert main([*command, "--text", "word", "--label", "stars"]) == 2
    assert 'Did you mean "words"?' in capsys.readouterr().err


def test_the_label_column_of_training_is_remembered(tmp_path: Path) -> None:
    folder = save(make_model(), tmp_path / "model")
    task = json.loads((folder / "task.json").read_text())
    (folder / "task.json").write_text(json.dumps(task | {"label": "mood"}))
    path = tmp_path / "test.csv"
    path.write_text("text,mood,label\na good film,good,other\na bad film,bad,other\n")
    assert main(["evaluate", str(folder), str(path)]) == 0
