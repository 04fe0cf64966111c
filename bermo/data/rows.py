"""What a task reads: rows of text with their answers, one class for each kind of task.

Answers are `None` where a file has none, as when a trained model predicts. `digest` is the sha256 of the
content, so that two files with the same rows share one token cache.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from bermo.errors import BermoError


@dataclass(frozen=True)
class TextRows:
    """One text or a pair of texts a row; its label is a class, a number, or a tuple of all that it has."""

    first: Sequence[str]
    second: Sequence[str] | None = None
    labels: Sequence[str] | Sequence[float] | Sequence[tuple[str, ...]] | None = None

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True)
class TaggedRows:
    """Sentences already split into words, each word with its tag."""

    words: Sequence[Sequence[str]]
    tags: Sequence[Sequence[str]] | None = None

    def __len__(self) -> int:
        return len(self.words)


@dataclass(frozen=True)
class SpanRows:
    """Questions on a passage; an answer is its text and its first character, none = unanswerable."""

    ids: Sequence[str]
    questions: Sequence[str]
    contexts: Sequence[str]
    answers: Sequence[Sequence[tuple[str, int]]] | None = None

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class ChoiceRows:
    """A first text and several endings; the label is the number of the right one."""

    first: Sequence[str]
    endings: Sequence[Sequence[str]]
    labels: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True)
class ApartRows:
    """One text a row or several, each read by itself; a number says how alike the two of a pair are.

    Without numbers the second text of a row belongs to the first, and a third does not.
    """

    texts: Sequence[tuple[str, ...]]
    labels: Sequence[float] | None = None

    def __len__(self) -> int:
        return len(self.texts)


Rows = TextRows | TaggedRows | SpanRows | ChoiceRows | ApartRows


def check_several(texts: object, name: str = "texts") -> None:
    """Refuse one text where several are expected: as a list it would be one of letters."""
    if isinstance(texts, str | bytes):
        wanted = "with one for each text" if name == "labels" else "of texts"
        advice = "" if name == "labels" else " Pass [text]."
        raise BermoError(f"{name} is one text, {texts[:40]!r}, but a list {wanted} was expected.{advice}")


def label_names(rows: Rows) -> list[str]:
    """Return every label or tag of the rows as often as it occurs; numbers and spans have none."""
    if isinstance(rows, TaggedRows):
        return [tag for tags in rows.tags or () for tag in tags]
    if isinstance(rows, SpanRows):
        return []
    names: list[str] = []
    for label in rows.labels or ():
        if isinstance(label, tuple):
            names += label
        elif not isinstance(label, float):
            names.append(str(label))
    return names


def head(rows: Rows, count: int | None) -> Rows:
    """Return the first `count` rows, or all of them where `count` is None."""
    if count is None or count >= len(rows):
        return rows
    return pick(rows, range(count))


def pick(rows: Rows, indices: Sequence[int]) -> Rows:
    """Return the rows of these numbers, in that order."""
    columns = {item.name: getattr(rows, item.name) for item in fields(rows)}
    picked: dict[str, Any] = {
        name: [column[index] for index in indices] for name, column in columns.items() if column is not None
    }
    return replace(rows, **picked)


def text_keys(rows: TextRows) -> list[str]:
    """Return what is equal for rows with the same text or pair, but for capitals and blanks."""
    columns = [rows.first] if rows.second is None else [rows.first, rows.second]
    plain = ([" ".join(text.casefold().split()) for text in column] for column in columns)
    return ["\t".join(texts) for texts in zip(*plain, strict=True)]


_TO_JSON = json.JSONEncoder().encode


def digest(rows: Rows) -> str:
    """Return the sha256 of the rows' content."""
    total = hashlib.sha256(type(rows).__name__.encode())
    for item in fields(rows):
        column = getattr(rows, item.name)
        total.update(f"\n{item.name}\n".encode())
        # JSON marks where a text ends, so that moving a word between cells changes the digest.
        total.update("".join(f"{line}\n" for line in map(_TO_JSON, column or ())).encode())
    return total.hexdigest()
