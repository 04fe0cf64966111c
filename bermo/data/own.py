"""The user's own tables to rows: which columns, the kind of labels, what is left out, divided, doubtful."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from bermo.data.columns import Columns, are_numbers, find_columns
from bermo.data.corpora import (
    find_empty,
    label_cells,
    numbers,
    relevance,
    text_rows,
    with_point,
    without_empty,
)
from bermo.data.divide import divide
from bermo.data.doubts import Source, as_numbers, find_doubts, only_class
from bermo.data.label_lists import read_labels, split_labels
from bermo.data.other_kinds import check_is_no_word_file, check_is_of_texts
from bermo.data.read import read_table
from bermo.data.rows import TextRows, head, label_names, pick
from bermo.data.table import Table
from bermo.data.tasks import Kind
from bermo.errors import BermoError
from bermo.spec import DataSpec

MOST_EMPTY = 0.05
"""Rows without a text are left out up to this share; more of them are a mistake in the file."""
MOST_OF_FEW = 50
"""So many classes may be of few rows each."""
LEAST_DIFFERENT = 20
"""So many labels that all differ are no classes."""


@dataclass(frozen=True, kw_only=True)
class OwnRows:
    """What the user's tables hold; `kind` is that of their labels."""

    kind: Kind
    train: TextRows
    valid: TextRows
    columns: Columns
    label_separator: str | None = None
    notes: tuple[str, ...]
    doubts: tuple[str, ...]


def read_own(spec: DataSpec) -> OwnRows:
    """Read the user's files."""
    if spec.train is None:
        raise BermoError(
            "No train file was given. Pass --train with your file, or --task with the name of a known task"
            " (bermo list)."
        )
    is_open = spec.task == "own" and not (spec.text or spec.label)
    if is_open and spec.separator is None:
        check_is_no_word_file(Path(spec.train).expanduser())
    train = _read(spec.train, spec)
    if is_open:
        check_is_of_texts(train)
    return rows_of_tables(spec, train, None if spec.valid is None else _read(spec.valid, spec))


def _read(path: str, spec: DataSpec) -> Table:
    return read_table(Path(path).expanduser(), separator=spec.separator_character)


def rows_of_tables(spec: DataSpec, train: Table, valid: Table | None) -> OwnRows:
    """Return the rows of two tables, or of one that is divided."""
    columns = find_columns(train, spec.text, spec.label)
    train = _with_texts(train, columns)
    kind = _kind(train, columns, spec)
    source = _source(train, columns, kind, spec)
    _check_classes(source, kind, columns)
    other = None if valid is None else _source(_with_texts(valid, columns), columns, kind, spec)
    text = " and ".join(f'"{name}"' for name in columns.text)
    notes = [f'text from column{"s" * (len(columns.text) > 1)} {text}, label from "{columns.label}": {kind}']
    about_rows = [*source.table.notes, *(other.table.notes if other is not None else ())]
    doubts = find_doubts(source if other is None else _limited(source, spec.limit), other, columns.label)
    if train.is_in_memory:  # they have no separator or sheet to note, only rows that are left out
        doubts = [*about_rows, *doubts]
    else:
        notes += about_rows
    notes += _about_labels(source) if kind == "multi-label" else ()
    if other is not None:
        train_rows, valid_rows = source.rows, other.rows
    else:
        train_rows, valid_rows, told = _divided(source, spec)
        notes.append(told)
        doubts += only_class(valid_rows, f"{source.name}, divided")
    return OwnRows(
        kind=kind,
        train=train_rows,
        valid=valid_rows,
        columns=columns,
        label_separator=spec.label_separator,
        notes=tuple(notes),
        doubts=tuple(doubts),
    )


def _with_texts(table: Table, columns: Columns) -> Table:
    """Leave out the few rows that have no text, and note which."""
    has_many = len(find_empty(table, columns.text)) > MOST_EMPTY * len(table)
    return table if has_many else without_empty(table, columns.text)


def _cells(table: Table, columns: Columns) -> list[str]:
    return label_cells(table, str(columns.label))


def _kind(table: Table, columns: Columns, spec: DataSpec) -> Kind:
    """Return the kind that the task names, or what the labels look like."""
    if spec.task != "own":
        return cast(Kind, spec.task.removeprefix("own/"))
    cells = [cell for cell in _cells(table, columns) if cell]
    if spec.label_separator is not None:
        return "multi-label"
    several = split_labels(cells)
    if several is not None and any(len(row) != 1 for row in several):
        return "multi-label"
    single = cells if several is None else [row[0] for row in several]
    if are_numbers(single):
        return "regression"
    if are_numbers([with_point(cell) for cell in single]):
        example = next(cell for cell in single if with_point(cell) != cell)
        raise BermoError(
            f'{table.path}: the labels (column "{columns.label}") are numbers with a decimal comma, such as'
            f' "{example}". Write a point, {with_point(example)}, or pass --kind classification if they are'
            " classes."
        )
    return "classification"


def _source(table: Table, columns: Columns, kind: Kind, spec: DataSpec) -> Source:
    """Return the rows of a table with labels of this kind."""
    if kind == "multi-label":
        labels = read_labels(_cells(table, columns), spec.label_separator)
        return Source(table, replace(text_rows(table, columns.text, None), labels=labels))
    source = Source(table, text_rows(table, columns.text, columns.label))
    source = _with_one_label(source) if spec.task == "own" else source
    if kind == "reranker":
        return replace(source, rows=relevance(source.rows, table.path, table.place))
    return (
        source
        if kind != "regression"
        else replace(source, rows=numbers(source.rows, table.path, table.place))
    )


def _limited(source: Source, limit: int | None) -> Source:
    """Return the rows that are trained on: the first so many."""
    if limit is None or limit >= len(source.rows):
        return source
    rows = head(source.rows, limit)
    assert isinstance(rows, TextRows)
    return Source(source.table.pick(range(limit)), rows)


def _about_labels(source: Source) -> list[str]:
    """Say how many rows have none of the labels, which is an answer too, or that no row has several."""
    counts = [len(row) for row in source.rows.labels or () if isinstance(row, tuple)]
    notes = []
    if 0 in counts:
        notes.append(f"{source.name}: {counts.count(0):,} of {len(counts):,} rows have no label at all")
    if max(counts) < 2:
        notes.append(
            f"{source.name}: no row has more than one label. If they are apart by something else than |, name"
            " it with --label-separator"
        )
    return notes


def _with_one_label(source: Source) -> Source:
    """Take the label out of lists of one; a row of several labels is an error."""
    cells = [str(label) for label in source.rows.labels or ()]
    several = split_labels(cells)
    if several is None:
        return source
    for index, row in enumerate(several):
        if len(row) != 1:
            raise BermoError(
                f"{source.table.path}, {source.table.place(index)}: the label {cells[index]} is {len(row)}"
                " labels, but every row of the training file has one. Pass --task own/multi-label if rows"
                " have several, or own/classification if the whole cell is the name of a class."
            )
    return replace(source, rows=replace(source.rows, labels=[row[0] for row in several]))


def _check_classes(source: Source, kind: Kind, columns: Columns) -> None:
    """Refuse a column with so many different values that it cannot hold classes."""
    if kind in ("regression", "reranker"):
        return
    labels = label_names(source.rows)
    num_classes = len(set(labels))
    if num_classes > max(MOST_OF_FEW, len(labels) // 2) or num_classes == len(labels) >= LEAST_DIFFERENT:
        raise BermoError(
            f'{source.table.path}: the label column "{columns.label}" has {num_classes} different values'
            f" in {len(source.rows)} rows, too many for classes. Name the right one with --label, or"
            f" {as_numbers(source.table)} if they are numbers to predict."
        )


def _divided(source: Source, spec: DataSpec) -> tuple[TextRows, TextRows, str]:
    parts = divide(source.rows, spec.split, source.table.path)
    train, valid = pick(source.rows, parts.train), pick(source.rows, parts.valid)
    assert isinstance(train, TextRows)
    assert isinstance(valid, TextRows)
    return train, valid, parts.told(source.name)
