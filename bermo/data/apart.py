"""The user's files for a sentence encoder: texts alone, pairs with or without a number, or triplets.

text                          taught by another model's vectors
text1, text2, score           how alike the two are, on any scale; the largest of training becomes 1
anchor, positive              they belong together; all other rows of a batch do not
anchor, positive, negative    and this one is near, but does not
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bermo.data.columns import LABELS, Columns, find_columns
from bermo.data.corpora import numbers, text_rows, without_empty
from bermo.data.divide import divide
from bermo.data.inputs import line_blocks
from bermo.data.packed import kind_of
from bermo.data.read import read_table
from bermo.data.rows import ApartRows, TextRows, pick
from bermo.data.table import Table
from bermo.data.text import read_lines, read_sample
from bermo.errors import BermoError
from bermo.spec import DataSpec

TOGETHER = ("anchor", "positive", "negative")
NUMBERS = (*LABELS, "similarity")
EVERY_LINE = 2**31


@dataclass(frozen=True, kw_only=True)
class OwnApart:
    """Training and validation rows of a sentence encoder, and the columns of the first."""

    train: ApartRows
    valid: ApartRows
    columns: Columns
    notes: tuple[str, ...]


def read_apart(spec: DataSpec) -> OwnApart:
    """Read the user's files; without a validation file, pairs are divided."""
    if spec.train is None:
        raise BermoError("No train file was given. Pass --train with texts or pairs of texts.")
    path = Path(spec.train).expanduser()
    table = read_texts(path, spec.separator_character)
    columns = apart_columns(table, spec.text, spec.label)
    train = apart_rows(table, columns)
    notes = [f"texts from {' and '.join(columns.text)}, {_learned(columns)}"]
    if spec.valid is not None:
        valid_path = Path(spec.valid).expanduser()
        valid = read_pairs(valid_path, separator=spec.separator_character)
    elif len(columns.text) == 1:
        raise BermoError(
            f"{path} has texts alone, by which no vectors can be scored. Pass --valid with pairs (text1,"
            " text2, score)."
        )
    else:
        train, valid, told = _divided(train, spec.split, path)
        notes.append(told)
    largest = max(map(abs, train.labels or (1.0,))) or 1.0
    return OwnApart(
        train=_scaled(train, largest), valid=_scaled(valid, largest), columns=columns, notes=tuple(notes)
    )


def read_pairs(
    path: Path, text: Sequence[str] | None = None, label: str | None = None, separator: str | None = None
) -> ApartRows:
    """Read pairs that vectors are scored by: with a number each, or such that the second is searched for."""
    table = read_texts(path, separator)
    columns = apart_columns(table, text, label)
    if len(columns.text) < 2:
        raise BermoError(
            f"{path} has one text a row ({columns.text[0]}), but vectors are scored by pairs. Give text1,"
            " text2 and score."
        )
    return apart_rows(table, columns)


def read_texts(path: Path, separator: str | None = None) -> Table:
    """Read a table, or a .txt file of one text a line."""
    if kind_of(path) != ".txt" or separator is not None:
        return read_table(path, separator=separator)
    for table in line_blocks(read_lines(path, read_sample(path)), ("text",), EVERY_LINE, str(path)):
        return replace(table, path=path)
    raise BermoError(f"{path} is empty.")


def apart_columns(table: Table, text: Sequence[str] | None, label: str | None) -> Columns:
    """Return the columns of the texts, and that of the number where two texts have one."""
    names = {name.lower(): name for name in table.columns}
    if text is None and all(name in names for name in TOGETHER[:2]):
        text = [names[name] for name in TOGETHER if name in names]
    found = find_columns(table, text, label, needs_label=False)
    if len(found.text) > len(TOGETHER):
        raise BermoError(f"A row has at most {len(TOGETHER)} texts, but got {', '.join(found.text)}.")
    usual = next((names[name] for name in NUMBERS if name in names and names[name] not in found.text), None)
    return Columns(found.text, (label or usual) if len(found.text) == 2 else None)


def apart_rows(table: Table, columns: Columns) -> ApartRows:
    """Return the rows of a table that have all their texts."""
    table = without_empty(table, columns.text)
    if not len(table):
        raise BermoError(f"{table.path} has no text that is not empty.")
    texts = list(zip(*(table.column(name) for name in columns.text), strict=True))
    if columns.label is None:
        return ApartRows(texts)
    labels = numbers(text_rows(table, columns.text, columns.label), table.path, table.place).labels
    return ApartRows(texts, [float(str(label)) for label in labels or ()])


def _learned(columns: Columns) -> str:
    if columns.label is not None:
        return f'how alike they are from "{columns.label}"'
    if len(columns.text) == 1:
        return "to be taught"
    return "which belong together; the other rows of a batch do not"


def _divided(rows: ApartRows, share: float | None, path: Path) -> tuple[ApartRows, ApartRows, str]:
    first, second = ([texts[side] for texts in rows.texts] for side in (0, 1))
    parts = divide(TextRows(first, second, rows.labels), share, path)
    train, valid = pick(rows, parts.train), pick(rows, parts.valid)
    assert isinstance(train, ApartRows)
    assert isinstance(valid, ApartRows)
    return train, valid, parts.told(path.name)


def _scaled(rows: ApartRows, largest: float) -> ApartRows:
    """Bring the largest number of training to 1, the largest cosine."""
    if rows.labels is None or largest <= 1:
        return rows
    return replace(rows, labels=[label / largest for label in rows.labels])
