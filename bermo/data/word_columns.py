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
    blocks = read_blocks(path)
    width = len(blocks[0].rows[0])
    for block in blocks:
        for number, cells in enumerate(block.rows, start=block.line):
            if len(cells) != width:
                raise BermoError(
                    f"{path}, line {number}: got {len(cells)} columns, but the first word has {width}. All"
                    " words need as many."
                )
    names = NAMES.get(width) or tuple(f"column-{at}" for at in range(2, width + 1))
    return [_sentence(block.rows, names) for block in blocks]


@dataclass(frozen=True)
class Block:
    """The lines of a sentence, each as its cells, and the number of the first."""

    line: int
    rows: list[list[str]]


def read_blocks(path: Path) -> list[Block]:
    """Read the sentences of a file as they stand there; a file without one is an error."""
    blocks: list[Block] = []
    is_open = False
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        cells = line.split()
        if not cells or cells[0] == BREAK:
            is_open = False
            continue
        if len(cells) == 1:
            raise BermoError(
                f'{path}, line {number}: "{cells[0][:40]}" has no tag beside it. One word and its tag a line'
                " were expected, and a blank line between sentences."
            )
        if not is_open:
            blocks.append(Block(number, []))
            is_open = True
        blocks[-1].rows.append(cells)
    if not blocks:
        raise BermoError(f"{path} holds no sentence. Expected a word a line, its tag beside it.")
    return blocks


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
