"""JSON in all the forms that people have; what is none of them is one sentence."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bermo.data.read import read_table
from bermo.errors import BermoError

Write = Callable[[str, str], Path]
ROWS = [{"text": "one", "label": "a"}, {"text": "two", "label": "b"}]
WANTED = {"text": ["one", "two"], "label": ["a", "b"]}
LINES = "\n".join(map(json.dumps, ROWS))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", json.dumps(ROWS)),
        ("a.json", json.dumps(ROWS, indent=2)),
        ("a.json", json.dumps(WANTED)),
        ("a.json", json.dumps(WANTED, indent=2)),
        ("a.json", json.dumps({name: {"0": a, "1": b} for name, (a, b) in WANTED.items()})),
        ("a.json", json.dumps({"version": 1, "data": ROWS})),
        ("a.json", LINES),
        ("a.jsonl", LINES),
        ("a.ndjson", LINES + "\n\n"),
        ("a.jsonl", LINES.replace("\n", "\r\n")),
        ("a.jsonl", LINES.replace("\n", "\r")),
        ("a.jsonl", json.dumps(ROWS)),
    ],
)
def test_all_forms_give_the_same_table(write: Write, name: str, text: str) -> None:
    assert read_table(write(name, text)).columns == WANTED


def test_one_object_is_one_row(write: Write) -> None:
    assert read_table(write("a.json", '{"text": "one",\n "label": 1}')).columns == {
        "text": ["one"],
        "label": ["1"],
    }


def test_a_field_that_a_row_lacks_is_empty_there(write: Write) -> None:
    table = read_table(write("a.jsonl", '{"text": "a"}\n{"text": "b", "label": 1.5}\n{"label": null}\n'))
    assert table.columns == {"text": ["a", "b", ""], "label": ["", "1.5", ""]}


def test_lists_come_out_as_json(write: Write) -> None:
    table = read_table(write("a.jsonl", '{"text": "a", "label": ["x", "y"]}'))
    assert table.columns["label"] == ['["x", "y"]']


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", "{}\n{}\n", "no row has a named field. Expected rows such as"),
        ("a.jsonl", "[1]\n", "row 1: an object with named fields"),
        ("a.jsonl", '{"text": "a"}\n3\n', "row 2: an object with named fields"),
        ("a.json", "3", "a list of rows was expected"),
        ("a.json", "{}", "no row has a named field"),
        ("a.json", '{"text": ["a", "b"], "label": ["x"]}', r"different lengths \(text 2, label 1\)"),
        ("a.json", '{"train": [{"text": "a"}], "test": [{"text": "b"}]}', r"several parts \(train, test\)"),
        (
            "a.json",
            '{"train": {"text": ["a"]}, "valid": {"text": []}, "test": {}}',
            r"train\.json, valid\.json and so on",
        ),
        ("a.json", '{\n"text": [\n', "line 3: not JSON"),
        ("a.jsonl", "[" * 100_000, "nested too deeply"),
        ("a.json", "[" * 100_000 + "]" * 100_000, "nested too deeply"),
        ("a.jsonl", '{"a":' * 100_000, "line 1: nested too deeply"),
        ("a.jsonl", '{"text": ' + "9" * 5000 + "}", "line 1: a number of too many digits"),
        ("a.jsonl", '{"text": "\\ud83d"}', r"row 1: '\\ud83d' is half of a character"),
    ],
)
def test_what_is_no_table_is_one_sentence(write: Write, name: str, text: str, message: str) -> None:
    with pytest.raises(BermoError, match=message):
        read_table(write(name, text))


def test_the_program_that_divides_a_file_of_several_parts_runs(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = write(
        "a.json", '{"train": [{"text": "é", "label": "x"}], "test": {"text": ["b"], "label": ["y"]}}'
    )
    with pytest.raises(BermoError) as error:
        read_table(path)
    monkeypatch.chdir(tmp_path)
    exec(str(error.value).split('"')[1])
    assert read_table(Path("train.json")).columns == {"text": ["é"], "label": ["x"]}
    assert read_table(Path("test.json")).columns == {"text": ["b"], "label": ["y"]}


def test_a_first_row_without_fields_is_like_any_row(write: Write) -> None:
    assert read_table(write("a.jsonl", '{}\n{"text": "a"}\n')).columns == {"text": ["", "a"]}
