"""Sentences of CoNLL-U files: words, parts of speech, features, and the tree of each sentence.

    10 columns with tabs between them: id form lemma upos xpos feats head deprel deps misc

A line `1-2` (a token of several words) and a line `1.1` (a word that was not written) stand beside the
sentence: its words are the lines with whole numbers. A tree is looked at only where it is asked for, so that
a file without heads can be read for its parts of speech.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bermo.data.packed import kind_of
from bermo.data.text import read_sample, read_text
from bermo.errors import BermoError

COLUMNS = 10
NOTHING = "_"
ROOT = -1
"""The head of the word that has none; other heads count words from 0 on."""
SIDE_LINE = re.compile(r"\d+[-.]\d+")
SHOWN = 40
"""Letters of a user's word that a sentence of ours repeats."""


@dataclass(frozen=True, kw_only=True)
class ParsedSentence:
    """The words of a sentence with all that a line says of them, and the file's line of each."""

    words: tuple[str, ...]
    upos: tuple[str, ...]
    xpos: tuple[str, ...]
    features: tuple[str, ...]
    """As in the file: Number=Sing|Person=3, or _."""
    heads: tuple[str, ...]
    """As in the file; `tree_of` reads them."""
    relations: tuple[str, ...]
    lines: tuple[int, ...]


def read_conllu(path: Path) -> list[ParsedSentence]:
    """Read the sentences of a file; one without words is left out."""
    found = [_sentence(path, rows) for rows in _blocks(path) if rows]
    if not found:
        raise BermoError(f"{path} holds no sentence. Expected 10 columns with tabs, a blank line between.")
    return found


def is_conllu(path: Path) -> bool:
    """Tell whether a file is CoNLL-U, by its name or by its first word."""
    if kind_of(path) == ".conllu":
        return True
    lines = (line.strip() for line in read_sample(path).text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "").split("\t")
    return len(first) == COLUMNS and re.fullmatch(r"1(-\d+)?", first[0]) is not None


def _blocks(path: Path) -> Iterator[list[tuple[int, list[str]]]]:
    """Yield the words of each sentence as cells, with their line in the file."""
    rows: list[tuple[int, list[str]]] = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        line = line.rstrip("\r")
        if not line.strip():
            yield rows
            rows = []
        elif not line.startswith("#"):
            cells = _cells(path, number, line)
            if not SIDE_LINE.fullmatch(cells[0]):
                _check_number(path, number, cells[0], len(rows) + 1)
                rows.append((number, cells))
    yield rows


def _cells(path: Path, number: int, line: str) -> list[str]:
    cells = line.split("\t")
    if len(cells) != COLUMNS:
        blanks = " Put tabs, not blanks, between them." if len(line.split()) == COLUMNS else ""
        raise BermoError(
            f"{path}, line {number}: got {len(cells)} columns, but CoNLL-U has {COLUMNS} with tabs between"
            f" them (id form lemma upos xpos feats head deprel deps misc).{blanks}"
        )
    return [cell.strip() for cell in cells]


def _check_number(path: Path, number: int, given: str, expected: int) -> None:
    if given != str(expected):
        raise BermoError(
            f'{path}, line {number}: the word\'s number is "{given[:SHOWN]}", but {expected} was expected.'
            " Words count from 1 in each sentence, and a blank line ends one."
        )


def _sentence(path: Path, rows: Sequence[tuple[int, list[str]]]) -> ParsedSentence:
    for number, cells in rows:
        if not cells[1]:
            raise BermoError(f"{path}, line {number}: the second column, the word itself, is empty.")
    columns = list(zip(*(cells for _, cells in rows), strict=True))
    return ParsedSentence(
        words=columns[1],
        upos=columns[3],
        xpos=columns[4],
        features=columns[5],
        heads=columns[6],
        relations=columns[7],
        lines=tuple(number for number, _ in rows),
    )


def features_of(cell: str) -> dict[str, str]:
    """Read Number=Sing|Person=3 as names and values."""
    pairs = (part.partition("=") for part in cell.split("|") if "=" in part)
    return {name: value for name, _, value in pairs}


def tree_of(path: Path, sentence: ParsedSentence) -> tuple[int, ...]:
    """Return the head of each word, counted from 0, ROOT for one; anything but a tree is an error."""
    heads = tuple(_head(path, sentence, at) for at in range(len(sentence.words)))
    roots = [at for at, head in enumerate(heads) if head == ROOT]
    if len(roots) > 1:
        first, second = (_named(sentence, at) for at in roots[:2])
        raise BermoError(
            f"{path}, line {sentence.lines[roots[1]]}: both {first} and {second} have the head 0, but a"
            " sentence has one root."
        )
    if not roots:
        raise BermoError(
            f"{path}, line {sentence.lines[0]}: no word of this sentence has the head 0, so it has no root."
        )
    _check_reaches_root(path, sentence, heads)
    return heads


def _head(path: Path, sentence: ParsedSentence, at: int) -> int:
    given, count = sentence.heads[at], len(sentence.words)
    where = f"{path}, line {sentence.lines[at]}"
    if given in (NOTHING, ""):
        raise BermoError(f"{where}: {_named(sentence, at)} has no head (column 7), and trees need all.")
    if not (given.isascii() and given.isdigit()) or len(given) > len(str(count)) or int(given) > count:
        raise BermoError(
            f'{where}: the head of {_named(sentence, at)} is "{given[:SHOWN]}", but it must be a number from'
            f" 0 (the root) to {count}, the words of the sentence."
        )
    if int(given) == at + 1:
        raise BermoError(f"{where}: {_named(sentence, at)} is its own head. Give another word's number.")
    return int(given) - 1


def _check_reaches_root(path: Path, sentence: ParsedSentence, heads: Sequence[int]) -> None:
    """Refuse words whose heads lead in a circle."""
    is_good = [head == ROOT for head in heads]
    for start in range(len(heads)):
        way, at = [], start
        while not is_good[at]:
            way.append(at)
            at = heads[at]
            if len(way) > len(heads):
                raise BermoError(
                    f"{path}, line {sentence.lines[start]}: the heads above {_named(sentence, start)} lead"
                    " in a circle and never to the root. Mend column 7 of this sentence."
                )
        for passed in way:
            is_good[passed] = True


def _named(sentence: ParsedSentence, at: int) -> str:
    return f'"{sentence.words[at][:SHOWN]}"'
