"""Several labels in a row: lists of JSON or parquet, lists as Python prints them, and "sport|politics"."""

import ast
import json
from collections.abc import Collection, Sequence
from typing import Any

SEPARATOR = "|"
Labels = tuple[str, ...]


def split_labels(cells: Sequence[str], separator: str | None = None) -> list[Labels] | None:
    """Return the labels of each row where rows have several, or None where each cell is one label.

    Without a separator lists are recognised, and cells with "|" whose parts come again in other cells.
    """
    lists = _lists(cells) if any(cell.startswith("[") for cell in cells) else None
    if lists is not None:
        return lists
    if separator is not None:
        return [_parts(cell, separator) for cell in cells]
    return _piped(cells)


def read_labels(cells: Sequence[str], separator: str | None, known: Collection[str] = ()) -> list[Labels]:
    """Return the labels of each row, an empty cell having none; a `known` label is never split."""
    lists = _lists(cells) if any(cell.startswith("[") for cell in cells) else None
    if lists is not None:
        return lists
    return [(cell,) if cell in known else _parts(cell, separator or SEPARATOR) for cell in cells]


def join_labels(labels: Sequence[str]) -> str:
    """Return labels as one cell that `read_labels` reads."""
    has_bar = any(SEPARATOR in label for label in labels)
    return json.dumps(list(labels), ensure_ascii=False) if has_bar else SEPARATOR.join(labels)


def _lists(cells: Sequence[str]) -> list[Labels] | None:
    """Read cells as lists; a cell that is one label alone stands for a list of one."""
    read = []
    for cell in cells:
        items = _parse(cell) if cell.startswith("[") else [cell] if cell else []
        if not isinstance(items, list) or any(isinstance(item, list | dict) for item in items):
            return None
        read.append(tuple(dict.fromkeys(map(label_text, items))))
    return read


def label_text(item: Any) -> str:
    """Return one label of a list as text."""
    return item if isinstance(item, str) else json.dumps(item)


def _parse(cell: str) -> Any:
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(cell)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return None


def _parts(cell: str, separator: str) -> Labels:
    parts = (part.strip() for part in cell.split(separator))
    return tuple(dict.fromkeys(part for part in parts if part))


def _piped(cells: Sequence[str]) -> list[Labels] | None:
    """Split cells at "|" where the parts come again in other cells: no more parts than different cells."""
    different = set(cells)
    if not any(SEPARATOR in cell for cell in different):
        return None
    rows = [_parts(cell, SEPARATOR) for cell in cells]
    parts = {part for row in rows for part in row}
    return rows if len(parts) <= len(different) else None
