"""What is doubtful about a user's files, as sentences with examples that are shown before training.

None of it makes a training wrong for certain, so it goes on: labels that differ in capitals alone, one text
with two labels, validation rows that are also training rows, control characters, numbers read as classes,
words that programs write where a value is missing, classes of one row.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from bermo.data.corpora import CONTROL, EXAMPLES, as_number
from bermo.data.rows import TextRows, text_keys
from bermo.data.table import Table

SHOWN = 30
"""Characters of a text that an example shows."""
LOST = "\ufffd"
SCALE_NAMES = ("score", "rating", "stars")
MISSING = ("nan", "NaN", "NULL", "null", "N/A", "n/a", "NA", "<NA>", "#N/A", "None", "NaT")
"""What programs write for a value that is missing."""
SEVERAL = (",", ";", "/")
"""What people write between several labels of a row, apart from the separator that is recognised."""
USUAL_ROWS = 5
"""With fewer rows a class on average, a class of a single row is no exception."""
MOST_CLASS_NUMBERS = 10
"""More different whole numbers than this may be a scale, fewer are more often the numbers of classes."""


@dataclass(frozen=True)
class Source:
    """The rows of one file, and the table that they were read from."""

    table: Table
    rows: TextRows

    @property
    def name(self) -> str:
        return self.table.path.name

    def text(self, index: int) -> str:
        text = self.rows.first[index]
        return repr(text if len(text) <= SHOWN else text[:SHOWN] + "…")


def as_numbers(table: Table) -> str:
    """Say how labels are learned as numbers, as the rows were given: in a file or in Python."""
    return "take bermo.Regressor" if table.is_in_memory else "pass --task own/regression"


def find_doubts(train: Source, valid: Source | None, label: str | None) -> list[str]:
    """List what is doubtful about the files, a sentence each."""
    found = [sentence for source in (train, valid) if source for sentence in _odd_characters(source)]
    found += [*_missing(train, train.rows.first, "text", "read as words"), *_objects(train)]
    labels = list(train.rows.labels or ())
    if labels and not isinstance(labels[0], float):
        names = [" and ".join(name) if isinstance(name, tuple) else str(name) for name in labels]
        found += [*_like_labels(train), *_contradictions(train, names), *_scale(train, names, label)]
        found += _missing(train, names, "label", "learned as classes")
    if labels and isinstance(labels[0], str):
        found += [*_joined(train, names), *_single(train, names)]
    if valid is None:
        return found
    return [*found, *only_class(valid.rows, valid.name), *_overlap(train, valid)]


def only_class(valid: TextRows, name: str) -> list[str]:
    """Say where all rows of validation have the same label."""
    labels = valid.labels or ()
    if len(labels) < 2 or len(set(labels)) > 1 or not isinstance(labels[0], str):
        return []
    return [
        f'{name}: all {len(labels):,} validation rows have the label "{labels[0]}", so the score cannot tell'
        " learning from one answer to everything. Give validation rows of every class with --valid."
    ]


def _missing(source: Source, cells: Sequence[str], what: str, taken: str) -> list[str]:
    found = [index for index, cell in enumerate(cells) if cell.strip() in MISSING]
    if not found:
        return []
    words = " or ".join(f'"{word}"' for word in dict.fromkeys(cells[index].strip() for index in found))
    count = _count(len(found), f"{what} is", f"{what}s are")
    which = f"which {'is' if len(found) == 1 else 'are'} {taken}"
    return [
        f"{source.name}: {count} {words} ({_places(source, found)}), {which}. Leave such rows out if it means"
        f" that the {what} is missing."
    ]


def _objects(source: Source) -> list[str]:
    texts = source.rows.first
    if not texts or not all(text.startswith(("{", "[")) and _is_json(text) for text in texts):
        return []
    return [
        f"{source.name}: every text is an object or a list of JSON ({source.table.place(0)}:"
        f" {source.text(0)}), and is read with its brackets and names. Put the text itself into the column."
    ]


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        return False


def _joined(source: Source, labels: Sequence[str]) -> list[str]:
    """Say where classes look like several labels: their parts come again in other classes."""
    names = dict.fromkeys(labels)
    for separator in SEVERAL:
        joined = [name for name in names if separator in name]
        parts = {part.strip() for name in names for part in name.split(separator)}
        if joined and len(parts) <= len(names) and all(parts):
            place = source.table.place(labels.index(joined[0]))
            return [
                f'{source.name}: the label "{joined[0]}" ({place}) is learned as one class. If it is several'
                f' labels, pass --label-separator "{separator}".'
            ]
    return []


def _single(source: Source, labels: Sequence[str]) -> list[str]:
    counts = Counter(labels)
    single = [name for name, count in counts.items() if count == 1]
    if not single or len(labels) < USUAL_ROWS * len(counts):
        return []
    places = ", ".join(f'"{name}" in {source.table.place(labels.index(name))}' for name in single[:EXAMPLES])
    more = ", …" if len(single) > EXAMPLES else ""
    count = _count(len(single), "class has", "classes have")
    return [
        f"{source.name}: {count} a single row ({places}{more}): too few to be learned. Give more rows, or"
        " leave them out."
    ]


def _places(source: Source, rows: Sequence[int]) -> str:
    more = ", …" if len(rows) > EXAMPLES else ""
    return ", ".join(source.table.place(index) for index in rows[:EXAMPLES]) + more


def _odd_characters(source: Source) -> list[str]:
    texts = source.rows.first
    odd = [index for index, text in enumerate(texts) if CONTROL.search(text)]
    lost = [index for index, text in enumerate(texts) if LOST in text]
    sentences = []
    for rows, what in ((odd, "control characters, which no word has"), (lost, f'"{LOST}", a lost character')):
        if rows:
            places = "; ".join(f"{source.table.place(i)}: {_around(texts[i])}" for i in rows[:EXAMPLES])
            count = _count(len(rows), f"of {len(texts):,} texts holds", f"of {len(texts):,} texts hold")
            sentences.append(
                f"{source.name}: {count} {what} ({places}). Was the file saved in another encoding?"
            )
    return sentences


def _around(text: str) -> str:
    found = CONTROL.search(text)
    start = max(0, (found.start() if found else text.index(LOST)) - SHOWN // 2)
    return repr(text[start : start + SHOWN])


def _like_labels(source: Source) -> list[str]:
    spellings: dict[str, dict[str, int]] = defaultdict(dict)
    for index, given in enumerate(source.rows.labels or ()):
        for label in given if isinstance(given, tuple) else (str(given),):
            spellings["".join(label.casefold().split())].setdefault(label, index)
    sentences = []
    for group in spellings.values():
        if len(group) > 1:
            names = ", ".join(f'"{name}" ({source.table.place(i)})' for name, i in group.items())
            sentences.append(
                f"{source.name}: the labels {names} differ only in capitals or blanks, but are"
                f" {len(group)} classes. Write them alike if they mean the same."
            )
    return sentences[:EXAMPLES]


def _contradictions(source: Source, labels: Sequence[str]) -> list[str]:
    known: dict[str, dict[str, int]] = defaultdict(dict)
    for index, (key, label) in enumerate(zip(text_keys(source.rows), labels, strict=True)):
        known[key].setdefault(label, index)
    twice = [group for group in known.values() if len(group) > 1]
    if not twice:
        return []
    examples = []
    for group in twice[:EXAMPLES]:
        names = ", ".join(f'"{name}" in {source.table.place(i)}' for name, i in group.items())
        examples.append(f"{source.text(next(iter(group.values())))} is {names}")
    count = _count(len(twice), "text has", "texts have")
    return [f"{source.name}: {count} several labels ({'; '.join(examples)})."]


def _scale(source: Source, labels: Sequence[str], column: str | None) -> list[str]:
    names = set(labels)
    values = [as_number(name) for name in names]
    least = 2 if (column or "").lower() in SCALE_NAMES else MOST_CLASS_NUMBERS
    if any(value is None for value in values) or len(names) <= least:
        return []
    return [
        f"{source.name}: the labels are {len(names)} different numbers and are learned as classes."
        f" If they are a scale, {as_numbers(source.table)}."
    ]


def _overlap(train: Source, valid: Source) -> list[str]:
    lines = {key: index for index, key in reversed(list(enumerate(text_keys(train.rows))))}
    both = [(index, lines[key]) for index, key in enumerate(text_keys(valid.rows)) if key in lines]
    if not both:
        return []
    if len(both) == len(valid.rows):
        return [
            f"{valid.name}: all {len(both):,} validation texts are also in {train.name}, so the score says"
            " how well they are remembered, not what the model does with new texts. Leave --valid out, and"
            " the training file is divided."
        ]
    examples = "; ".join(
        f"{valid.text(i)}, {valid.table.place(i)} and {train.table.place(j)}" for i, j in both[:EXAMPLES]
    )
    share = _count(len(both), f"of {len(valid.rows):,} texts is", f"of {len(valid.rows):,} texts are")
    return [
        f"{valid.name}: {share} also in {train.name} ({examples}). On new texts the score would be lower."
    ]


def _count(number: int, one: str, several: str) -> str:
    return f"{number:,} {one if number == 1 else several}"
