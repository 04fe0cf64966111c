"""Texts and labels in memory to tables: lists, arrays, series, frames, datasets and dicts of columns.

Nothing of pandas, polars, pyarrow or datasets is imported: a frame is what has `columns`, a dataset what has
`column_names`, and a series or an array what has one of TO_LIST.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bermo.data.corpora import label_column
from bermo.data.label_lists import label_text
from bermo.data.rows import check_several
from bermo.data.table import Table, as_text
from bermo.errors import BermoError
from bermo.printing import number_of

TEXT, PAIR, LABEL = ("text",), ("text_a", "text_b"), "label"
"""How columns are called that were given without names."""
SEVERAL = (list, tuple)
MISSING = ("NAType", "NaTType")
"""Classes of pandas for a value that is not there."""
TO_LIST = ("tolist", "to_list", "to_pylist")
"""What a series or an array is made into a list by, the last by pyarrow's."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Columns of equal length, with the values as they were given; `name` is what errors call them."""

    name: str
    values: dict[str, list[Any]]

    def table(self) -> Table:
        """Return the columns as a file of them would be read."""
        num_rows = len(next(iter(self.values.values()), ()))
        cells = {name: [_cell(value) for value in column] for name, column in self.values.items()}
        return Table(Path(self.name), cells, list(range(1, num_rows + 1)), is_in_memory=True)

    def column(self, name: str) -> list[Any]:
        """Return the column of this name, whatever its capitals."""
        return next(values for known, values in self.values.items() if known.lower() == name.lower())

    def has_several(self, column: str) -> bool:
        """Tell whether rows of the column are lists, of any number of labels each."""
        return any(isinstance(value, SEVERAL) for value in self.column(column))

    def labels(self, column: str) -> dict[str, Any]:
        """Return the different labels as they were given, by their texts."""
        if self.has_several(column):
            return _named((label_text(label), label) for label in _each(self.column(column)))
        given: dict[Any, Any] = {}
        for value in self.column(column):
            given.setdefault((type(value), _cell(value)), value)
        texts = {column: [text for _, text in given]}
        return _named(zip(label_column(_table(texts), column), given.values(), strict=True))


def _named(labels: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return labels by their texts; two that have the same text are refused."""
    named: dict[str, Any] = {}
    for text, value in labels:
        known = named.setdefault(text, value)
        if known != value:
            raise BermoError(
                f"The labels {known!r} and {value!r} are written alike. Give all labels in one type."
            )
    return named


def _each(rows: Iterable[Any]) -> Iterator[Any]:
    """Yield every label of rows of which some are lists; a row that is missing has none."""
    for row in rows:
        if isinstance(row, SEVERAL):
            yield from row
        elif not _is_missing(row):
            yield row


def labelled(texts: Any, labels: Any, name: str) -> Columns:
    """Return texts and their labels; without `labels`, `texts` has a column of them."""
    found = unlabelled(texts, name)
    if labels is None:
        if not _has_columns(texts):
            raise BermoError(f"The {name} have no labels. Give them as the second argument.")
        return found
    check_several(labels, "labels")
    values = _values(labels, "labels")
    for at, value in enumerate(values):
        items = value if isinstance(value, SEVERAL) else (value,)
        if any(isinstance(item, (*SEVERAL, dict)) for item in items):
            raise BermoError(f"labels[{at}] is {value!r}, but a label or a list of labels was expected.")
    num_texts = len(next(iter(found.values.values()), ()))
    if len(values) != num_texts:
        raise BermoError(
            f"There are {number_of(num_texts, 'text')} but {number_of(len(values), 'label')}."
            " Give one label for each text, or a list of them."
        )
    return Columns(name=name, values=found.values | {LABEL: values})


def unlabelled(texts: Any, name: str, names: Sequence[str] = (), takes_words: bool = False) -> Columns:
    """Return texts; `names` are those of the columns where they were given without names.

    A text may be a list of its words where the model tags them (`takes_words`).
    """
    check_several(texts)
    _check_table(texts, name)
    if _has_columns(texts):
        return Columns(name=name, values=_columns(texts))
    rows = _values(texts, "texts", most_axes=2)
    if not rows:
        raise BermoError(f"There are no {name}.")
    is_pair = isinstance(rows[0], tuple | list)
    names = names or (PAIR if is_pair else TEXT)
    if len(names) == 1:
        texts = [_text(row, at, takes_words) for at, row in enumerate(rows)]
        return Columns(name=name, values={names[0]: texts})
    for at, row in enumerate(rows):
        if not isinstance(row, tuple | list) or len(row) != len(names):
            raise BermoError(
                f"texts[{at}] is {str(row)[:40]!r}, but {len(names)} texts were expected in every row"
                f" ({', '.join(names)})."
            )
    return Columns(
        name=name,
        values={key: [_text(row[k], at) for at, row in enumerate(rows)] for k, key in enumerate(names)},
    )


def check_folder(folder: Any) -> Path:
    """Return the path of a folder; what is no path, or an empty one, is refused."""
    if not isinstance(folder, str | Path) or not str(folder).strip():
        raise BermoError(f"The folder is {folder!r}, but a path was expected, such as 'runs/mine'.")
    return Path(folder)


def _has_columns(data: Any) -> bool:
    return isinstance(data, Mapping) or hasattr(data, "columns") or hasattr(data, "column_names")


def _check_table(data: Any, name: str) -> None:
    """Refuse several tables in one, and a frame whose rows are not read yet."""
    if isinstance(data, Mapping) and any(map(_has_columns, data.values())):
        parts = [f'"{part}"' for part in data]
        raise BermoError(
            f"The {name} are several tables: {', '.join(parts)}. Pass one of them, such as data[{parts[0]}]."
        )
    if hasattr(data, "collect"):  # of polars or Spark
        raise BermoError(
            f"The {name} are a {type(data).__name__}, whose rows are not read yet. Pass the frame that it"
            " makes, such as data.collect()."
        )


def _columns(data: Any) -> dict[str, list[Any]]:
    if isinstance(data, Mapping):
        names = list(data)
    else:
        names = list(data.column_names if hasattr(data, "column_names") else data.columns)
    columns = {str(name): _values(data[name], str(name)) for name in names}
    if len({len(column) for column in columns.values()}) != 1:
        sizes = ", ".join(f"{name} {len(column)}" for name, column in columns.items())
        raise BermoError(f"Columns of equal length were expected, but got rows: {sizes or 'none'}.")
    classes = getattr(data, "features", None)
    if not isinstance(classes, Mapping):
        return columns
    return {name: _class_names(column, classes.get(name)) for name, column in columns.items()}


def _class_names(column: list[Any], feature: Any) -> list[Any]:
    """Return the names of a dataset's class numbers; other columns as they are."""
    inner = getattr(feature, "feature", None)  # of a column of lists
    names = getattr(feature, "names", None) or getattr(inner, "names", None)
    return column if names is None else [_class_name(value, names) for value in column]


def _class_name(value: Any, names: Sequence[str]) -> Any:
    if isinstance(value, list):
        return [_class_name(item, names) for item in value]
    if isinstance(value, int):  # below 0 is a label that is not known
        return names[value] if value >= 0 else None
    return value


def _values(data: Any, name: str, most_axes: int = 1) -> list[Any]:
    """Return a list, array, series or any other iterable as a list of plain values."""
    check_several(data, name)
    if getattr(data, "ndim", 1) > most_axes:
        raise BermoError(
            f"{name} has the shape {tuple(data.shape)}, but one value or one list a row was expected."
        )
    if isinstance(data, set | frozenset):
        raise BermoError(f"{name} is a {type(data).__name__}, which has no order. Pass a list.")
    convert = next((getattr(data, known) for known in TO_LIST if hasattr(data, known)), None)
    try:
        values = list(data if convert is None else convert())
    except TypeError:
        raise BermoError(f"{name} is {type(data).__name__}, but a list was expected.") from None
    return [_plain(value) for value in values]


def _plain(value: Any) -> Any:
    """Return a value of numpy or torch as Python's own, and a set as a list."""
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    return value.tolist() if hasattr(value, "tolist") else value


def _text(value: Any, at: int, takes_words: bool = False) -> Any:
    """Return a text, or the words of one; anything else but a missing value is an error."""
    if isinstance(value, str) or _is_missing(value):
        return value
    if takes_words and isinstance(value, tuple | list) and all(isinstance(word, str) for word in value):
        return list(value)
    raise BermoError(f"texts[{at}] is {value!r}, of type {type(value).__name__}, but a text was expected.")


def _is_missing(value: Any) -> bool:
    is_nan = isinstance(value, float) and math.isnan(value)
    return value is None or is_nan or type(value).__name__ in MISSING


def _cell(value: Any) -> str:
    return "" if _is_missing(value) else as_text(list(value) if isinstance(value, tuple) else value)


def _table(cells: dict[str, list[str]]) -> Table:
    num_rows = len(next(iter(cells.values()), ()))
    return Table(Path("labels"), cells, list(range(num_rows)))
