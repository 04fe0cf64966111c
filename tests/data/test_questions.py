"""Own files of questions: tables and SQuAD's JSON give the same rows; a wrong answer names its row."""

import json
from pathlib import Path

import pytest

from bermo.data.questions import read_questions
from bermo.data.rows import SpanRows
from bermo.errors import BermoError

PASSAGE = "The cat sat on the mat, and the cat slept."


def test_a_table_of_questions(tmp_path: Path) -> None:
    path = tmp_path / "my.csv"
    path.write_text(
        "question,context,answer,answer_start\n"
        f'Who slept?,"{PASSAGE}",the cat,28\n'
        f'Who sat?,"{PASSAGE}",cat,\n'
        f'Who barked?,"{PASSAGE}",,\n'
    )
    rows = read_questions(path, is_train=True)
    assert rows.answers == [[("the cat", 28)], [("cat", 4)], []]
    assert rows.contexts == [PASSAGE] * 3


def test_the_forms_of_the_hub_and_of_squad_are_equal(tmp_path: Path) -> None:
    answers = {"text": ["the mat", "mat"], "answer_start": [15, 19]}
    hub = tmp_path / "hub.jsonl"
    hub.write_text(
        json.dumps({"id": "1", "question": "Where?", "context": PASSAGE, "answers": answers}) + "\n"
    )
    squad = tmp_path / "squad.json"
    listed = [{"text": a, "answer_start": b} for a, b in zip(*answers.values(), strict=True)]
    item = {"id": "1", "question": "Where?", "answers": listed}
    squad.write_text(json.dumps({"data": [{"paragraphs": [{"context": PASSAGE, "qas": [item]}]}]}))
    expected = SpanRows(["1"], ["Where?"], [PASSAGE], [[("the mat", 15), ("mat", 19)]])
    assert read_questions(hub, is_train=True) == read_questions(squad, is_train=True) == expected


def test_a_last_letter_is_not_taken_for_an_unknown_start(tmp_path: Path) -> None:
    path = tmp_path / "my.jsonl"
    path.write_text(json.dumps({"question": "Which?", "context": "a or b or a", "answer": "a"}) + "\n")
    assert read_questions(path, is_train=True).answers == [[("a", 0)]]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"question": "a", "answer": "b"}, "Expected the columns question, context and answer"),
        (
            {"question": "a", "context": "b c", "answer": "d"},
            'the answer "d" of question line 1 does not occur',
        ),
        ({"question": "", "context": "b c", "answer": "b"}, "has an empty question or context"),
        ({"question": "a", "context": "b", "answer": "b", "answer_start": "x"}, 'answer_start is "x"'),
    ],
)
def test_a_mistake_is_a_sentence(tmp_path: Path, row: dict[str, str], said: str) -> None:
    path = tmp_path / "my.jsonl"
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(BermoError) as error:
        read_questions(path, is_train=True)
    assert said in str(error.value)
