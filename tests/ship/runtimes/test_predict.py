"""bermo predict as a user meets it: every source, every form of answer, and what is beside it."""

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bermo.cli import main
from bermo.data.inputs import line_blocks
from bermo.runs.trained import open_trained
from bermo.ship.runtimes import predict_file as sources
from bermo.ship.runtimes.predict import Predictor, predict_stream
from bermo.ship.runtimes.spec import PredictSpec
from tests.ship.folders import make_model, save

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of each kind."""
    root = tmp_path_factory.mktemp("models")
    for kind in ("classification", "regression", "tagging", "span", "choice"):
        save(make_model(kind=kind), root / kind, kind)
    return root


@pytest.fixture
def ask(models: Path, capsys: Capture) -> Callable[..., list[dict[str, Any]]]:
    """Return a function that runs the command and returns what it printed."""

    def asker(*words: str | Path, model: str = "classification") -> list[dict[str, Any]]:
        assert main(["predict", str(models / model), *map(str, words)]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return asker


Ask = Callable[..., list[dict[str, Any]]]


def test_texts_come_from_a_file_from_standard_input_or_from_the_command_line(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("a good film\nthe bad cats\n")
    expected = ask(tmp_path / "a.txt")
    assert len(expected) == 2
    assert ask("--text", "a good film", "--text", "the bad cats") == expected
    for words in ([], ["-"], ["--batch-size", "1", "-"]):
        monkeypatch.setattr(sys, "stdin", io.StringIO("a good film\nthe bad cats\n"))
        assert ask(*words)[1]["label"] == expected[1]["label"]


def test_the_first_line_of_a_table_is_no_row_of_the_progress(tmp_path: Path) -> None:
    for name, num_rows in {"a.csv": 2, "a.txt": 3, "a.jsonl": 3, "a.parquet": 0}.items():
        (tmp_path / name).write_text("text\na good film\nthe bad cats\n")
        assert sources._count(tmp_path / name) == num_rows


def test_standard_input_that_is_not_utf_8_is_told_how_to_be(
    models: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("a café\n".encode("latin-1"))))
    assert main(["predict", str(models / "classification")]) == 2
    assert "iconv -f WINDOWS-1252 -t UTF-8 FILE | bermo predict" in capsys.readouterr().err


def test_standard_input_may_be_a_table(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(b"number,text\n7,a good film\n"))
    monkeypatch.setattr(sys, "stdin", stream)
    (answer,) = ask("--format", "csv", "--id", "number")
    assert answer["number"] == "7"


def test_an_empty_row_has_an_empty_answer_and_the_others_their_own(
    models: Path, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "a.txt").write_text("a good film\n\nthe bad cats\n \n")
    assert main(["predict", str(models / "classification"), str(tmp_path / "a.txt"), "--probabilities"]) == 0
    printed = capsys.readouterr()
    answers = [json.loads(line) for line in printed.out.splitlines()]
    assert [answer["label"] is None for answer in answers] == [False, True, False, True]
    assert answers[1]["probabilities"] == {"bad": None, "good": None}
    assert sum(answers[2]["probabilities"].values()) == pytest.approx(1)
    assert "2 of 4 texts are empty and have an empty answer (the first: line 2)." in printed.err


def test_columns_asked_for_stand_beside_the_answer(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,number\na good film,=7\n,8\n")
    answers = ask(tmp_path / "a.csv", "--id", "number", "--with-text")
    assert [(item["number"], item["text"]) for item in answers] == [("=7", "a good film"), ("8", "")]
    out = tmp_path / "out.csv"
    assert ask(tmp_path / "a.csv", "--id", "number", "--out", out) == []
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["number"] for row in rows] == ["'=7", "8"]
    assert rows[1]["label"] == ""


def test_a_column_named_like_the_answer_is_refused(models: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "a.csv").write_text("text,label\na good film,x\n")
    command = ["predict", str(models / "classification"), str(tmp_path / "a.csv"), "--id", "label"]
    assert main(command) == 2
    said = capsys.readouterr().err
    assert 'The column "label" has the name of a part of the answer' in said
    assert "pass --truth label, or leave it out" in said
    (tmp_path / "a.csv").write_text("text,probability\na good film,x\n")
    assert main([*command[:-1], "probability"]) == 2
    assert (
        'The column "probability" has the name of a part of the answer. Rename it' in capsys.readouterr().err
    )


def test_other_columns_are_named(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,said\nwrong,a good film\n")
    (tmp_path / "b.txt").write_text("a good film\n")
    assert ask(tmp_path / "a.csv", "--columns", "said") == ask(tmp_path / "b.txt")


def test_other_kinds_answer_in_their_own_form(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a good film\n\n")
    assert [set(item) for item in ask(tmp_path / "a.txt", model="regression")] == [{"value"}, {"value"}]
    tagged, nothing = ask(tmp_path / "a.txt", "--probabilities", model="tagging")
    assert tagged["words"] == ["a", "good", "film"]
    assert len(tagged["tags"]) == len(tagged["probability"]) == 3
    assert nothing == {"words": [], "tags": [], "probability": []}
    (tmp_path / "q.csv").write_text("id,question,context\nq1,the cat ?,a good film .\nq2,,a film\n")
    found, nothing = ask(tmp_path / "q.csv", model="span")
    assert found["id"] == "q1"
    assert found["answer"] in "a good film ."
    assert nothing == {"id": "q2", "answer": None}
    (tmp_path / "c.csv").write_text("a,b,c,d\na film,the cat,saw,sees\n")
    (choice,) = ask(tmp_path / "c.csv", "--columns", "a,b,c,d", "--probabilities", model="choice")
    assert set(choice["probabilities"]) == {"0", "1"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["a.txt", "--text", "a"], "Both a file and --text were given"),
        (["a.txt", "--format", "csv"], "--format is for standard input"),
        (["none.txt"], "There is no file none.txt"),
        (["empty.txt"], "empty.txt is empty"),
        (["a.txt", "--id", "number"], 'and no column "number"'),
        (["a.txt", "--out", "a.xlsx"], "--out must end in .jsonl, .csv or .tsv"),
        (["a.txt", "--batch-size", "0"], "batch-size must be at least 1"),
    ],
)
def test_a_mistake_is_a_sentence_and_nothing_is_written(
    words: list[str],
    sentence: str,
    models: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("a good film\n")
    (tmp_path / "empty.txt").write_text("")
    assert main(["predict", str(models / "classification"), *words]) == 2
    assert sentence in capsys.readouterr().err
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.txt", "empty.txt"]


def test_the_likeliest_classes_come_in_their_order(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a good film\n\n")
    found, nothing = ask(tmp_path / "a.txt", "--top", "9")
    (every, _) = ask(tmp_path / "a.txt", "--probabilities")
    assert dict(zip(found["top"], found["top_probability"], strict=True)) == every["probabilities"]
    assert found["top"][0] == found["label"]
    assert found["top_probability"] == sorted(found["top_probability"], reverse=True)
    assert (nothing["top"], "probabilities" in nothing) == ([], False)
    one, _ = ask(tmp_path / "a.txt", "--top", "1", "--probabilities")
    assert (len(one["top"]), "probabilities" in one) == (1, True)


def test_numbers_and_tags_have_no_likeliest_classes(models: Path, capsys: Capture) -> None:
    for kind in ("regression", "tagging"):
        assert main(["predict", str(models / kind), "--text", "a", "--top", "2"]) == 2
        assert "Leave --top out" in capsys.readouterr().err


def test_numbers_and_spans_have_no_probabilities(models: Path, capsys: Capture) -> None:
    assert main(["predict", str(models / "regression"), "--text", "a", "--probabilities"]) == 2
    assert "Leave --probabilities out" in capsys.readouterr().err


def test_ctrl_c_ends_quietly_and_leaves_no_file(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def interrupted() -> Iterator[str]:
        yield from ["a good film\n"] * 40
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setattr(sources, "_typed_lines", interrupted)
    out = tmp_path / "a.jsonl"
    assert main(["predict", str(models / "classification"), "--batch-size", "2", "--out", str(out)]) == 130
    assert "Stopped" not in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_no_more_than_a_block_of_rows_is_ever_read_ahead_of_the_answers(models: Path) -> None:
    predictor = Predictor(open_trained(models / "classification"), batch_size=4)
    written: list[object] = []

    def lines() -> Iterator[str]:
        for number in range(60):
            assert number - len(written) < 16
            yield "the good film"

    done = predict_stream(predictor, line_blocks(lines(), ("text",), 16), PredictSpec(), written.append)
    assert done.num_rows == len(written) == 60


def test_with_the_right_labels_each_answer_is_told_right_or_wrong(
    ask: Ask, tmp_path: Path, models: Path, capsys: Capture
) -> None:
    (tmp_path / "a.csv").write_text("text,gold\na good film,good\na good film,bad\na good film,\n,good\n")
    answers = ask(tmp_path / "a.csv", "--truth", "gold")
    label = answers[0]["label"]
    assert [answer["right"] for answer in answers] == [label == "good", label == "bad", None, None]
    assert answers[0]["probability"] > 0.5
    assert main(["predict", str(models / "classification"), str(tmp_path / "a.csv"), "--truth", "glod"]) == 2
    assert 'no column "glod". Did you mean "gold"' in capsys.readouterr().err
    assert main(["predict", str(models / "tagging"), str(tmp_path / "a.csv"), "--truth", "gold"]) == 2
    assert "--truth compares one label a row" in capsys.readouterr().err
