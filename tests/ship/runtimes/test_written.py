"""Answers as JSON lines and as tables that a spreadsheet opens without computing anything."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from bermo.data.cells import FORMULA_SIGNS
from bermo.data.corpora import as_number
from bermo.errors import BermoError
from bermo.ship.runtimes.written import answer_writer, check_out

ANSWERS: list[dict[str, Any]] = [
    {"id": "=1+1", "text": '@cmd, "a"\nb', "label": "-x", "probabilities": {"-x": 0.5, "y": 0.5}},
    {"id": "-5", "text": "a\tb", "label": None, "probabilities": {"-x": None, "y": None}},
]


def written(name: str | None, answers: list[dict[str, Any]]) -> str:
    file = io.StringIO()
    write = answer_writer(file, None if name is None else Path(name))
    for answer in answers:
        write(answer)
    return file.getvalue()


@pytest.mark.parametrize("name", [None, "a.jsonl", "a.json"])
def test_json_lines_hold_every_answer_as_it_is(name: str | None) -> None:
    assert [json.loads(line) for line in written(name, ANSWERS).splitlines()] == ANSWERS


def test_a_cell_that_would_be_a_formula_is_escaped_and_a_number_is_not() -> None:
    rows = list(csv.reader(io.StringIO(written("a.csv", ANSWERS))))
    assert rows == [
        ["id", "text", "label", "probability_-x", "probability_y"],
        ["'=1+1", '\'@cmd, "a"\nb', "'-x", "0.5", "0.5"],
        ["-5", "a\tb", "", "", ""],
    ]


SIGNED = re.compile(r"'+[=+\-@\t\r\n＝＋－＠]")


@pytest.mark.parametrize(
    "text",
    ["=1", "'=1", "''@a", "-5", "'-5", "+x", "\t=1", "\n=1", "＝1", "'tis", "it's =1", "", "'", "-", "−1"],
)
def test_what_a_spreadsheet_would_compute_is_escaped_in_a_way_that_can_be_undone(text: str) -> None:
    (cell,) = list(csv.reader(io.StringIO(written("a.csv", [{"text": text}]), newline="")))[1] or [""]
    assert cell[:1] not in FORMULA_SIGNS or as_number(cell) is not None
    assert (cell[1:] if SIGNED.match(cell) else cell) == text


def test_tsv_has_no_quoting_and_a_line_for_each_answer() -> None:
    lines = written("a.tsv", ANSWERS).splitlines()
    assert lines[1] == "'=1+1\t'@cmd, \"a\" b\t'-x\t0.5\t0.5"
    assert lines[2] == "-5\ta b\t\t\t"


def test_lists_are_one_cell() -> None:
    answer = {"words": ["a", "b"], "tags": ["O", "B-X"], "labels": ["x", "y"], "probability": [0.5, None]}
    assert written("a.csv", [answer]).splitlines()[1] == "a b,O B-X,x|y,0.5 "


def test_an_unknown_ending_or_a_file_that_exists_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BermoError, match=r"must end in .jsonl, .csv or .tsv"):
        check_out(Path("answers.xlsx"))
    (tmp_path / "a.csv").write_text("")
    with pytest.raises(BermoError, match="not overwritten"):
        check_out(tmp_path / "a.csv")
