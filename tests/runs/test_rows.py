"""metrics.jsonl: rows with a seal each."""

import json
from pathlib import Path

import pytest

from bermo.errors import BermoError
from bermo.runs.rows import append_row, read_all_rows, read_rows

ROWS = [{"step": 1, "loss": 0.75}, {"step": 2, "loss": None}, {"step": 3, "loss": 0.25}]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    for row in ROWS:
        append_row(tmp_path / "metrics.jsonl", row)
    return tmp_path / "metrics.jsonl"


def test_rows_are_read_as_they_were_written_and_those_without_a_seal_too(path: Path) -> None:
    assert read_rows(path) == ROWS
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    assert read_rows(path) == ROWS
    assert read_rows(path.with_name("absent")) == []


def test_a_last_line_that_is_torn_does_not_count(path: Path) -> None:
    text = path.read_text()
    for end in range(text.rindex("\n", 0, -1) + 1, len(text) - 1):
        path.write_text(text[:end])
        assert read_rows(path) == ROWS[:2]


def test_a_file_that_ends_before_its_training_did_is_named_whatever_befell_it(path: Path) -> None:
    text = path.read_text()
    assert read_all_rows(path, 3) == ROWS
    for left in (text[: text.rindex("{")], text[:5], "", None):
        path.unlink(missing_ok=True)
        if left is not None:
            path.write_text(left)
        with pytest.raises(
            BermoError, match=r"metrics\.jsonl is damaged .* has 3 steps, and the last row is of"
        ):
            read_all_rows(path, 3)


def test_every_changed_bit_is_named_with_its_line_or_changes_nothing(path: Path) -> None:
    content = path.read_bytes()
    for place in range(len(content)):
        for bit in (0, 2, 5):
            changed = bytearray(content)
            changed[place] ^= 1 << bit
            path.write_bytes(changed)
            assert _said(path) in (str(ROWS), "named"), (place, bit)


def _said(path: Path) -> str:
    try:
        # A name such as crc3r is no seal; the numbers beside it are those that were written.
        return str([{name: row[name] for name in ("step", "loss")} for row in read_rows(path)])
    except BermoError as error:
        is_named = "metrics.jsonl is damaged" in str(error) and "line " in str(error)
        return "named" if is_named else str(error)


@pytest.mark.parametrize("line", ["[1]", "{}", '{"step": Infinity}', '{"step": "x"}', "[" * 100_000, "\x00"])
def test_a_line_that_is_no_row_is_one_sentence(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(BermoError, match="Restore it, or delete that line"):
        read_rows(path)
