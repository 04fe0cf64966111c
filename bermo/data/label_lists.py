"""Several labels in a row: lists of JSON or parquet, lists as Python prints them, and "sport|politics"."""

import ast
import json
from collections.abc import Sequence
from typing import Any


def split_labels(cells: Sequence[str]) -> list[tuple[str, ...]] | None:
    """Return the labels of each row where rows have several, or None where each cell is one label."""
    lists = _lists(cells) if any(cell.startswith("[") for cell in cells) else None
    return lists if lists is not None else _piped(cells)


def _lists(cells: Sequence[str]) -> list[tuple[str, ...]] | None:
    """Read cells as lists; a cell that is one label alone stands for a list of one."""
    read = []
    for cell in cells:
        items = _parse(cell) if cell.startswith("[") else [cell]
        if not isinstance(items, list) or any(isinstance(item, list | dict) for item in items):
            return None
        read.append(tuple(item if isinstance(item, str) else json.dumps(item) for item in items))
    return read


def _parse(cell: str) -> Any:
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(cell)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return None


def _piped(cells: Sequence[str]) -> list[tuple[str, ...]] | None:
    """Split cells at "|" where the parts come again in other cells: no more parts than different cells."""
    different = set(cells)
    if not any("|" in cell for cell in different):
        return None
    rows = [tuple(part.strip() for part in cell.split("|") if part.strip()) for cell in cells]
    parts = {part for row in rows for part in row}
    return rows if len(parts) <= len(different) else None
