"""Texts of a table for pretraining, a document a row: what a task is trained on, without its labels."""

from collections.abc import Iterator
from pathlib import Path

from bermo.data.columns import NO_FLAGS, find_columns
from bermo.data.packed import kind_of
from bermo.data.read import FORMATS, read_blocks

# One of these is text, and no table.
TABLES = tuple(kind for kind in FORMATS if kind != ".txt")
BLOCK_ROWS = 10_000


def is_table(path: Path) -> bool:
    """Tell by its name whether a file has columns."""
    return kind_of(path) in TABLES


def row_texts(path: Path) -> Iterator[str]:
    """Yield the text of each row, a pair as two lines, white space made single; empty ones are left out."""
    names: tuple[str, ...] = ()
    for table in read_blocks(path, BLOCK_ROWS):
        names = names or find_columns(table, None, None, needs_label=False, flags=NO_FLAGS).text
        for parts in zip(*(table.column(name) for name in names), strict=True):
            lines = [" ".join(part.split()) for part in parts]
            if text := "\n".join(filter(None, lines)):
                yield text
