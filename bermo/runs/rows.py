"""metrics.jsonl: what a training measured, a row of numbers a line, each with its own seal.

Rows are appended while the training runs, so a kill can leave a last line that is torn: it does not count.
Any other line that is no row, or not the row that was written, is an error that names it. Checkpoints hold
the rows too: a training that goes on writes the file again.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bermo.files import reading, seal, unseal, write_text
from bermo.typed import fits

METRICS_FILE = "metrics.jsonl"
SHARE = "mix/"
"""Before a layer's number: its share of the mix."""
REMEDY = "Restore it, or delete that line: the row is then missing in the curves."
Row = Mapping[str, Any]


def append_row(path: Path, row: Mapping[str, float | None]) -> None:
    """Write a row at the end of the file."""
    with path.open("a", encoding="utf-8", newline="\n") as file:
        file.write(_line(row))


def write_rows(path: Path, rows: Sequence[Mapping[str, float | None]]) -> None:
    """Write a file of these rows alone."""
    write_text(path, "".join(map(_line, rows)))


def _line(row: Mapping[str, float | None]) -> str:
    return json.dumps(seal(row)) + "\n"


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a file; none where there is no file."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    torn = lines.pop()
    with reading(path, REMEDY):
        # A last line without its end was never written whole, unless the end alone was changed.
        if torn and _is_row(torn[:-1]):
            raise ValueError(f"line {len(lines) + 1}: its end is another")
        return [_read(number, line) for number, line in enumerate(lines, start=1)]


def read_all_rows(path: Path, num_steps: int) -> list[Row]:
    """Return the rows of a training that has ended after so many steps: the last row is of the last step."""
    rows = read_rows(path)
    last = rows[-1]["step"] if rows else 0
    if last != num_steps:
        with reading(path, "Restore it, or leave this run out."):
            raise ValueError(f"the training has {num_steps} steps, and the last row is of step {last}")
    return rows


def _is_row(text: str) -> bool:
    try:
        return bool(unseal(text))
    except (ValueError, TypeError, RecursionError):
        return False


def _read(number: int, line: str) -> Row:
    try:
        row = unseal(line)
    except ValueError as error:
        raise ValueError(f"line {number}: {error}") from None
    if not fits(row, dict[str, float]) or not fits(row.get("step"), int):
        raise ValueError(f"line {number} is no row of numbers")
    return row
