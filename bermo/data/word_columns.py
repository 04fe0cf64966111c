"""Sentences of CoNLL's column files: a word a line, its labels beside it, a blank line between sentences.

    2 columns   word entity                      as this project's CoNLL-2003
    3 columns   word pos chunk                   CoNLL-2000
    4 columns   word pos chunk entity            CoNLL-2003
    others      word column-2 column-3 …

A column of O, B-TYPE and I-TYPE marks spans of words, any other labels the words themselves.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bermo.data.corpora import to_iob2
from bermo.data.text import read_lines, read_sample
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
    blocks = read_blocks(path)
    width = len(blocks[0].rows[0])
    names = NAMES.get(width) or tuple(f"column-{at}" for at in range(2, width + 1))
    return [_sentence(block.rows, names) for block in blocks]


@dataclass(frozen=True)
class Block:
    """The lines of a sentence, each as its cells, and the number of the first."""

    line: int
    rows: list[list[str]]


def read_blocks(path: Path) -> list[Block]:
    """Read the sentences of a file as they stand there; a file without one is an error."""
    blocks = list(sentence_blocks(path))
    if not blocks:
        raise BermoError(f"{path} holds no sentence. Expected a word a line, its tag beside it.")
    return blocks


def sentence_blocks(path: Path) -> Iterator[Block]:
    """Yield the sentences of a file one by one; all its lines must have as many columns as the first."""
    rows: list[list[str]] = []
    start = width = 0
    for number, line in enumerate(read_lines(path, read_sample(path)), start=1):
        cells = line.split()
        if not cells or cells[0] == BREAK:
            if rows:
                yield Block(start, rows)
            rows = []
            continue
        width = width or len(cells)
        start = start if rows else number
        rows.append(_cells(path, number, line, width))
    if rows:
        yield Block(start, rows)


def _cells(path: Path, number: int, line: str, width: int) -> list[str]:
    """Return the columns of a line; a word may hold a blank where tabs are between the columns."""
    cells = line.split()
    by_tabs = [cell.strip() for cell in line.split("\t")]
    if len(cells) != width == len(by_tabs) > 1 and all(by_tabs):
        return by_tabs
    if len(cells) == 1:
        raise BermoError(
            f'{path}, line {number}: "{cells[0][:40]}" has no tag beside it. One word and its tag a line'
            " were expected, and a blank line between sentences."
        )
    if len(cells) != width:
        raise BermoError(
            f"{path}, line {number}: got {len(cells)} columns, but the first word has {width}. All words"
            " need as many: a word first, its tag last, a blank line between sentences."
        )
    return cells


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
