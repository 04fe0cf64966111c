"""What is doubtful about a user's files, as sentences with examples that are shown before training.

None of it makes a training wrong for certain, so it goes on: labels that differ in capitals alone, one text
with two labels, validation rows that are also training rows, control characters, numbers read as classes.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from bermo.data.corpora import CONTROL, EXAMPLES, as_number
from bermo.data.rows import TextRows, text_keys
from bermo.data.table import Table

SHOWN = 30
"""Characters of a text that an example shows."""
LOST = "\ufffd"
SCALE_NAMES = ("score", "rating", "stars")
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


def find_doubts(train: Source, valid: Source | None, label: str | None) -> list[str]:
    """List what is doubtful about the files, a sentence each."""
    found = [sentence for source in (train, valid) if source for sentence in _odd_characters(source)]
    labels = list(train.rows.labels or ())
    if labels and not isinstance(labels[0], float):
        names = [" and ".join(name) if isinstance(name, tuple) else str(name) for name in labels]
        found += [*_like_labels(train), *_contradictions(train, names), *_scale(train, names, label)]
    return found + (_overlap(train, valid) if valid is not None else [])


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
        " If they are a scale, pass --task own/regression."
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
