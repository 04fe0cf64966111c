"""Sentences of CoNLL's column files: a word a line, its labels beside it, a blank line between sentences.

    2 columns   word entity                      as this project's CoNLL-2003
    3 columns   word pos chunk                   CoNLL-2000
    4 columns   word pos chunk entity            CoNLL-2003
    others      word column-2 column-3 …

A column of O, B-TYPE and I-TYPE marks spans of words, any other labels the words themselves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bermo.data.corpora import to_iob2
from bermo.data.text import read_text
from bermo.errors import BermoError

NAMES: Mapping[int, tuple[str, ...]] = {2: ("entity",), 3: ("pos", "chunk"), 4: ("pos", "chunk", "entity")}
BREAK = "-DOCSTART-"
OUTSIDE = "O"


@dataclass(frozen=True, kw_only=True)
class ColumnSentence:
    """The words of a sentence, and each column's labels by the name of the column."""

    words: tuple[str, ...]
    labels: Mapping[str, tuple[str, ...]]


def read_columns(path: Path) -> list[ColumnSentence]:
    """Read the sentences of a file; all its lines must have as many columns as the first."""
    blocks: list[list[list[str]]] = [[]]
    width = 0
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        cells = line.split()
        if not cells or cells[0] == BREAK:
            blocks.append([])
            continue
        width = width or len(cells)
        if len(cells) == 1:
            raise BermoError(f'{path}, line {number}: "{cells[0][:40]}" has no label beside it.')
        if len(cells) != width:
            raise BermoError(
                f"{path}, line {number}: got {len(cells)} columns, but the first word has {width}. All words"
                " need as many."
            )
        blocks[-1].append(cells)
    names = NAMES.get(width) or tuple(f"column-{at}" for at in range(2, width + 1))
    found = [_sentence(rows, names) for rows in blocks if rows]
    if not found:
        raise BermoError(f"{path} holds no sentence. Expected a word a line, its labels beside it.")
    return found


def _sentence(rows: Sequence[Sequence[str]], names: Sequence[str]) -> ColumnSentence:
    words, *columns = zip(*rows, strict=True)
    return ColumnSentence(words=words, labels=dict(zip(names, columns, strict=True)))


def marks_spans(labels: Sequence[Sequence[str]]) -> bool:
    """Tell whether a column marks spans: its labels are O, B-TYPE and I-TYPE, and not all are O."""
    different = {label for sentence in labels for label in sentence} - {OUTSIDE}
    return bool(different) and all(label[:2] in ("B-", "I-") and label[2:] for label in different)


def spans_of(labels: Sequence[str]) -> list[tuple[int, int, str]]:
    """Return the first word of each span, the one after its last, and its type."""
    spans: list[tuple[int, int, str]] = []
    for at, label in enumerate([*to_iob2(labels), OUTSIDE]):
        if spans and spans[-1][1] < 0 and not label.startswith("I-"):
            start, _, kind = spans.pop()
            spans.append((start, at, kind))
        if label.startswith("B-"):
            spans.append((at, -1, label[2:]))
    return spans
