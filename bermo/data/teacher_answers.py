"""A teacher's probabilities read from a file: its texts, and a column for each class; made by anything.

    text,negative,positive
    "not bad at all",0.08,0.92

Rows are found by their texts, so that the file may hold more rows than are trained on, in any order. The
column of a class may also be called probability_CLASS, all may be one object in "probabilities", and a text
may stand as a cell that no spreadsheet computes (cells.py): bermo predict --probabilities --with-text writes
them so.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bermo.data.cells import as_cell
from bermo.data.columns import find_columns
from bermo.data.objects import parse_json
from bermo.data.packed import kind_of
from bermo.data.read import read_table
from bermo.data.rows import Rows, TextRows
from bermo.data.table import Table, as_text
from bermo.errors import BermoError

WRITTEN = "probability_"
"""How `bermo predict` calls the column of a class, before the class."""
NEAR_ONE = 0.02
"""How far probabilities of a row may be from a sum of 1: they are often rounded."""
LEAST = 1e-6
"""Probabilities are not less, since their logarithm is learned from."""


def read_answers(
    path: Path, rows: Rows, labels: Sequence[str], text: Sequence[str] | None = None
) -> npt.NDArray[np.float32]:
    """Return the logarithms of a teacher's probabilities for every row, (rows, classes).

    `text` names the columns of texts, if not known by their names.
    """
    if not isinstance(rows, TextRows):
        raise BermoError(
            f"--teacher-answers are for texts that each have one class, but {path} would have to answer rows"
            " of another kind. Use --teacher with a trained model."
        )
    table = _with_columns(read_table(path))
    known = _by_text(table, rows, labels, text)
    keys = _keys(rows.first, rows.second)
    is_tsv = kind_of(path) == ".tsv"
    found = [known.get(key, known.get(tuple(as_cell(part, is_tsv) for part in key))) for key in keys]
    missing = [number for number, values in enumerate(found) if values is None]
    if missing:
        first = keys[missing[0]][0]
        raise BermoError(
            f"{path} has no answer to {len(missing):,} of {len(keys):,} training texts, the first of them"
            f' "{first[:60]}". It must have a row for each, with the same text.'
        )
    return np.log(np.stack([values for values in found if values is not None]).clip(LEAST)).astype(np.float32)


def _with_columns(table: Table) -> Table:
    """Return the table with a column for each class, where one column holds an object of all."""
    if not table.has("probabilities"):
        return table
    objects = []
    for index, cell in enumerate(table.column("probabilities")):
        value = parse_json(table.path, cell or "{}", table.lines[index])
        if not isinstance(value, dict):
            raise BermoError(
                f'{table.place(index)}: an object such as {{"good": 0.9, "bad": 0.1}} was expected.'
            )
        objects.append(value)
    names = dict.fromkeys(name for value in objects for name in value)
    columns = {f"{WRITTEN}{name}": [as_text(value.get(name)) for value in objects] for name in names}
    return replace(table, columns=table.columns | columns)


def _by_text(
    table: Table, rows: TextRows, labels: Sequence[str], text: Sequence[str] | None
) -> dict[tuple[str, ...], npt.NDArray[np.float64]]:
    names = [label if table.has(label) else f"{WRITTEN}{label}" for label in labels]
    lacking = [label for label, name in zip(labels, names, strict=True) if not table.has(name)]
    if lacking:
        raise BermoError(
            f'{table.path} has no column "{lacking[0]}". It needs the texts and a column of probabilities for'
            f" each class: {', '.join(labels[:8])}."
        )
    columns = find_columns(table, text, None, needs_label=False).text
    wanted = 1 if rows.second is None else 2
    if len(columns) != wanted:
        raise BermoError(
            f"{table.path} must have {wanted} columns of texts, as the training rows have, but got"
            f" {len(columns)}: {', '.join(columns)}. Name them with --text."
        )
    values = np.stack([_numbers(table, name) for name in names], axis=1)
    off = np.flatnonzero((np.abs(values.sum(1) - 1) > NEAR_ONE) | (values < 0).any(1))
    if len(off):
        raise BermoError(
            f"{table.place(int(off[0]))}: the probabilities of a row must be 0 or more and sum to 1, but got"
            f" {', '.join(f'{value:g}' for value in values[off[0]])}."
        )
    texts = [table.column(name) for name in columns]
    return dict(zip(zip(*texts, strict=True), values, strict=True))


def _numbers(table: Table, label: str) -> npt.NDArray[np.float64]:
    numbers = []
    for index, cell in enumerate(table.column(label)):
        try:
            numbers.append(float(cell))
        except ValueError:
            raise BermoError(
                f'{table.place(index)}: a probability of "{label}" was expected, but got "{cell[:40]}".'
            ) from None
    return np.array(numbers)


def _keys(first: Sequence[str], second: Sequence[str] | None) -> list[tuple[str, ...]]:
    return [(text,) for text in first] if second is None else list(zip(first, second, strict=True))
