"""A table of named text columns that knows where each of its rows stood in the file.

Every complaint about a row names file and line; libraries of tables do not keep the lines, so files are read
by hand.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bermo.data.packed import kind_of
from bermo.errors import BermoError, nearest

COUNTED_BY_ROW = (".json", ".parquet", ".xlsx")
NAMED_BY_ROW = (".jsonl", ".ndjson", ".json", ".parquet")


@dataclass(frozen=True)
class Table:
    """Columns of equal length by name, and the line of the file that each row came from."""

    path: Path
    columns: dict[str, list[str]]
    lines: list[int]
    skipped: int = 0
    notes: tuple[str, ...] = ()
    is_in_memory: bool = False
    is_lines: bool = False
    """Whether the rows are lines of text, whose columns no line names."""

    def __len__(self) -> int:
        return len(self.lines)

    def has(self, name: str) -> bool:
        """Tell whether there is a column called `name`, whatever its capitals."""
        return name.lower() in (known.lower() for known in self.columns)

    def column(self, name: str) -> list[str]:
        """Return the column called `name`, whatever its capitals; an unknown name is an error."""
        for known, values in self.columns.items():
            if known.lower() == name.lower():
                return values
        if self.is_lines:
            raise BermoError(
                f'{self.path} has texts alone, and no column "{name}". Give a file with named columns, such'
                " as .csv."
            )
        there = ", ".join(f'"{known}"' for known in self.columns)
        hint = nearest(name, self.columns)
        close = "" if hint.startswith(" Known") else hint
        raise BermoError(
            f'{self.path} has no column "{name}".{close} Its columns: {there}.' + self.if_no_header()
        )

    def if_no_header(self, example: str = "") -> str:
        """Say what to do where the first line of a file names no columns; JSON and parquet always do."""
        if self.is_in_memory or kind_of(self.path) in NAMED_BY_ROW:
            return ""
        return f" If the first line is a row of data, add a line with the columns' names above it{example}."

    def place(self, index: int) -> str:
        """Return where a row stands in the file: "line 3", or "row 3" where a file has no lines."""
        is_counted = self.is_in_memory or kind_of(self.path) in COUNTED_BY_ROW
        return f"{'row' if is_counted else 'line'} {self.lines[index]}"

    def pick(self, indices: Sequence[int]) -> "Table":
        """Return the table with the rows of these numbers alone."""
        columns = {name: [values[i] for i in indices] for name, values in self.columns.items()}
        return replace(self, columns=columns, lines=[self.lines[i] for i in indices])

    def blocks(self, size: int) -> "Iterator[Table]":
        """Yield tables of at most `size` of the rows."""
        for start in range(0, len(self), size):
            yield self.pick(range(start, min(start + size, len(self))))


def table_of(path: Path, rows: Iterable[tuple[int, dict[str, Any]]], notes: tuple[str, ...] = ()) -> Table:
    """Build a table from the line and the fields of each row; a field that a row lacks is empty there."""
    columns: dict[str, list[str]] = {}
    lines: list[int] = []
    for line, fields in rows:
        for name, value in fields.items():
            if name not in columns:
                columns[name] = [""] * len(lines)
            columns[name].append(_cell(path, line, value))
        lines.append(line)
        for values in columns.values():
            if len(values) < len(lines):
                values.append("")
    if lines and not columns:
        raise BermoError(f"{path}: no row has a named field. Expected rows such as {EXAMPLE}.")
    return Table(path, columns, lines, notes=notes)


EXAMPLE = '{"text": "a fine film", "label": "good"}'


def as_text(value: Any) -> str:
    """Return a JSON or parquet value as the text a TSV would hold; nothing is the empty text."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    is_json = isinstance(value, bool | int | float | list | dict)
    return json.dumps(value, ensure_ascii=False, default=str) if is_json else str(value)


def _cell(path: Path, line: int, value: Any) -> str:
    try:
        text = as_text(value)
        text.encode()
    except RecursionError:
        raise BermoError(f"{path}, row {line}: a value is nested too deeply to be read.") from None
    except UnicodeEncodeError as error:
        half = ascii(error.object[error.start])
        raise BermoError(
            f"{path}, row {line}: {half} is half of a character. Write the file anew as UTF-8."
        ) from None
    return text
