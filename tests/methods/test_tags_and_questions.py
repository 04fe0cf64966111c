"""Own files of tagged words and of questions, from the file to answers: trained, evaluated, asked."""

import json
from pathlib import Path

import pytest

from bermo.cli import main

pytestmark = pytest.mark.usefixtures("shallow_box")

SMALL = "--max-length 32 --epochs 1 --batch-size 16 --device cpu"
NAMES = ("Peter", "Anna", "Maria", "John")


@pytest.fixture
def tagged(tmp_path: Path) -> Path:
    """Texts with the spans of their names."""
    rows = []
    for number in range(40):
        name = NAMES[number % 4]
        text = f"Today {name} saw film {number}."
        rows.append({"text": text, "spans": [{"start": 6, "end": 6 + len(name), "label": "PER"}]})
    path = tmp_path / "my.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_tagger_learns_from_texts_with_spans(
    tagged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(tmp_path / "run")
    assert main(["train", "--train", str(tagged), "--kind", "tagging", "--out", run, *SMALL.split()]) == 0
    assert "my.jsonl is divided" in capsys.readouterr().err
    task = json.loads((tmp_path / "run" / "model" / "task.json").read_text())
    assert (task["kind"], task["metric"], task["labels"]) == ("tagging", "f1", ["O", "B-PER"])
    said = tmp_path / "said.json"
    assert main(["evaluate", run, str(tagged), "--out", str(said)]) == 0
    assert json.loads(said.read_text())["metric"] == "f1"
    capsys.readouterr()
    assert main(["predict", run, "--text", "Today Anna saw film 3."]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["words"] == ["Today", "Anna", "saw", "film", "3."]


def test_tags_of_words_are_scored_word_by_word(tmp_path: Path) -> None:
    path = tmp_path / "my.conll"
    path.write_text("\n\n".join(f"the DET\ncat NOUN\nsat VERB\n{n} NUM" for n in range(30)) + "\n")
    run = tmp_path / "run"
    words = ["train", "--train", str(path), "--kind", "tagging", "--metric", "accuracy", "--out", str(run)]
    assert main([*words, *SMALL.split()]) == 0
    result = json.loads((run / "result.json").read_text())
    assert result["metric"] == "accuracy"
    assert set(result["seeds"][0]["values"]) == {"accuracy"}


def test_questions_of_a_table_are_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "my.csv"
    rows = [
        f"Who saw film {n}?,Today {NAMES[n % 4]} saw film {n}.,{NAMES[n % 4] if n % 5 else ''}"
        for n in range(40)
    ]
    path.write_text("question,context,answer\n" + "\n".join(rows) + "\n")
    run = str(tmp_path / "run")
    assert main(["train", "--train", str(path), "--kind", "span", "--out", run, *SMALL.split()]) == 0
    task = json.loads((tmp_path / "run" / "model" / "task.json").read_text())
    assert (task["kind"], task["has_no_answer"]) == ("span", True)
    said = tmp_path / "said.json"
    assert main(["evaluate", run, str(path), "--out", str(said)]) == 0
    assert "no_answer_f1" in json.loads(said.read_text())["values"]
    capsys.readouterr()
    assert main(["predict", run, str(path)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 40
