"""Datasets of the hub, through the `hub` extra (the package datasets), and only where the user names one.

A name is `owner/name`, or `owner/name:configuration`. Class numbers become class names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bermo.data.corpora import check_spans, to_iob2
from bermo.data.rows import Rows, SpanRows, TaggedRows
from bermo.data.table import Table, as_text
from bermo.errors import BermoError

VALID_NAMES = ("validation", "valid", "dev", "validation_matched", "test")


@dataclass(frozen=True)
class HubData:
    """Train and validation of a hub dataset: as tables, or as rows where the task has its own form."""

    notes: tuple[str, ...]
    tables: tuple[Table, ...] = ()
    rows: tuple[Rows, Rows] | None = None


def read_hub(name: str, kind: str | None) -> HubData:
    """Load a hub dataset's train and validation splits in the form that a task of this kind reads."""
    try:
        import datasets
    except ImportError:
        raise BermoError(
            f'Reading "{name}" from the hub needs datasets. Install the extra: pip install'
            ' "bermo[hub]", or give files with --train and --valid.'
        ) from None
    path, _, configuration = name.partition(":")
    try:
        splits = datasets.load_dataset(path, configuration or None)
    except (OSError, ValueError, RuntimeError) as error:
        raise BermoError(f'The hub dataset "{name}" could not be loaded: {error}') from None
    valid_name = _split_names(name, splits)
    train, valid = splits["train"], splits[valid_name]
    notes = (f'hub dataset {name}: splits "train" and "{valid_name}"',)
    if kind == "span":
        spans = _span_rows(train, name, is_train=True), _span_rows(valid, name, is_train=False)
        return HubData(notes, rows=spans)
    if kind == "tagging":
        return HubData(notes, rows=(_tagged_rows(train, name), _tagged_rows(valid, name)))
    tables = _table(train, f"{name}/train"), _table(valid, f"{name}/{valid_name}")
    return HubData(notes, tables)


def _split_names(name: str, splits: Mapping[str, Any]) -> str:
    valid = next((known for known in VALID_NAMES if known in splits), None)
    if "train" not in splits or valid is None:
        raise BermoError(
            f'The hub dataset "{name}" has the splits {", ".join(splits)}, but train and one of'
            f" {', '.join(VALID_NAMES)} were expected."
        )
    return valid


def _names(feature: Any) -> Sequence[str] | None:
    """Return the class names of a column of class numbers, or None for any other column."""
    inner = getattr(feature, "feature", feature)
    names: Sequence[str] | None = getattr(inner, "names", None)
    return names


def _table(split: Any, name: str) -> Table:
    columns = {}
    for column in split.column_names:
        names = _names(split.features[column])
        columns[column] = [as_text(_named(value, names)) for value in split[column]]
    return Table(Path(name), columns, list(range(1, len(split) + 1)))


def _named(value: Any, names: Sequence[str] | None) -> Any:
    """Return the name of a class number, or the names of a list of them."""
    if names and isinstance(value, list):
        return [_named(item, names) for item in value]
    return names[value] if names and isinstance(value, int) and value >= 0 else value


def _span_rows(split: Any, name: str, is_train: bool) -> SpanRows:
    _check_columns(split, name, ("id", "question", "context", "answers"))
    answers = [list(zip(item["text"], item["answer_start"], strict=True)) for item in split["answers"]]
    rows = SpanRows(list(split["id"]), list(split["question"]), list(split["context"]), answers)
    return check_spans(rows, name, is_train)


def _tagged_rows(split: Any, name: str) -> TaggedRows:
    _check_columns(split, name, ("tokens", "ner_tags"))
    names = _names(split.features["ner_tags"])
    tags = [[names[tag] if names else str(tag) for tag in row] for row in split["ner_tags"]]
    return TaggedRows([list(words) for words in split["tokens"]], [to_iob2(row) for row in tags])


def _check_columns(split: Any, name: str, expected: Sequence[str]) -> None:
    missing = [column for column in expected if column not in split.column_names]
    if missing:
        raise BermoError(
            f'The hub dataset "{name}" lacks the columns {", ".join(missing)}. It has'
            f" {', '.join(split.column_names)}."
        )
