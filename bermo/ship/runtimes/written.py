"""Answers as files: JSON lines, or a table with a line for each answer, by the ending of the file's name.

In a table a list is one cell, its items apart by blanks (words, tags) or by "|" (labels), and probabilities
are a column each. A text that a spreadsheet would take for a formula gets an apostrophe before it
(data/cells.py).
"""

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

from bermo.data.cells import as_cell
from bermo.data.label_lists import join_labels
from bermo.errors import BermoError
from bermo.files import check_place

Answer = Mapping[str, Any]
Write = Callable[[Answer], None]
JSON_LINES = (".jsonl", ".json", ".ndjson")
CONTROLS = {code: f"\\u{code:04x}" for code in range(127, 160)}
"""Controls that JSON may leave as they are, and that a terminal would obey."""
TABLES = {".csv": ",", ".tsv": "\t"}


def check_out(path: Path | None) -> None:
    """Refuse a file whose ending says no form of answers, or that is there already."""
    if path is None:
        return
    if path.suffix.lower() not in (*JSON_LINES, *TABLES):
        raise BermoError(f"--out must end in .jsonl, .csv or .tsv, but got {path}.")
    if path.exists():
        raise BermoError(f"{path} exists and is not overwritten. Give another name with --out.")
    check_place(path)


def answer_writer(file: TextIO, path: Path | None) -> Write:
    """Return a function that writes one answer after the other; JSON lines where no file is named."""
    separator = None if path is None else TABLES.get(path.suffix.lower())
    if separator is None:
        return lambda answer: _write_line(file, json.dumps(answer, ensure_ascii=False).translate(CONTROLS))
    return _TableWriter(file, separator)


def _write_line(file: TextIO, line: str) -> None:
    file.write(line + "\n")


class _TableWriter:
    """Lines of cells, the names of the columns above the first."""

    def __init__(self, file: TextIO, separator: str) -> None:
        self.file, self.is_tsv = file, separator == "\t"
        self.csv = csv.writer(file, delimiter=separator, lineterminator="\n")
        self.has_header = False

    def __call__(self, answer: Answer) -> None:
        cells = _flat(answer)
        if not self.has_header:
            self._write(list(cells))
            self.has_header = True
        self._write(list(cells.values()))

    def _write(self, values: list[Any]) -> None:
        cells = [self._cell(value) for value in values]
        if self.is_tsv:  # it has no quoting, here and where bermo reads it
            self.file.write("\t".join(cells) + "\n")
        else:
            self.csv.writerow(cells)

    def _cell(self, value: Any) -> str:
        if value is None:
            return ""
        return as_cell(value, self.is_tsv) if isinstance(value, str) else str(value)


def _flat(answer: Answer) -> dict[str, Any]:
    """Return a cell for each value: a dict becomes a column for each of its keys, a list one cell."""
    cells: dict[str, Any] = {}
    for key, value in answer.items():
        if isinstance(value, dict):
            cells |= {f"probability_{name}": item for name, item in value.items()}
        elif isinstance(value, list):
            cells[key] = join_labels(value) if key in ("labels", "top") else " ".join(map(_item, value))
        else:
            cells[key] = value
    return cells


def _item(value: Any) -> str:
    return "" if value is None else str(value)
