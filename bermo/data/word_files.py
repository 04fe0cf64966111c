"""The words of files in the form that trains a tagger, for a tagger that answers: their tags are not read.

    EU B-ORG          columns: a word first, its tag last, a blank line between sentences
    1 EU eu PROPN …   CoNLL-U

Such a file is known by its content, since a .txt file may also hold one text a line.
"""

import json
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path

from bermo.data.conllu import is_conllu, read_conllu
from bermo.data.objects import JSON
from bermo.data.packed import check_file, kind_of
from bermo.data.read import BINARY
from bermo.data.table import Table
from bermo.data.tagged import is_tag
from bermo.data.text import read_sample
from bermo.data.word_columns import BREAK, sentence_blocks

WORDS = "words"


def holds_tagged_words(path: Path, tags: Collection[str]) -> bool:
    """Tell whether each line of a file's start is a word with its tag, one of `tags` or of entities."""
    if kind_of(path) in (*JSON, *BINARY):
        return False
    check_file(path)
    if is_conllu(path):
        return True
    sample = read_sample(path)
    lines = sample.text.split(sample.line_end)
    rows = [cells for line in (lines if sample.is_whole else lines[:-1]) if (cells := line.split())]
    words = [cells for cells in rows if cells[0] != BREAK]
    return bool(words) and all(len(cells) > 1 and is_tag(cells[-1], tags) for cells in words)


def holds_words(table: Table) -> bool:
    """Tell whether a table comes from such a file, in which many lines are one row."""
    return list(table.columns) == [WORDS] and kind_of(table.path) not in (*JSON, *BINARY)


def word_blocks(path: Path, size: int) -> Iterator[Table]:
    """Yield the sentences of such a file as tables of at most `size` rows with the column "words"."""
    note = f"{path.name}: each line is a word with its tag; its tags are not read"
    sentences = _sentences(path)
    while block := list(islice(sentences, size)):
        words = [json.dumps(words, ensure_ascii=False) for _, words in block]
        yield Table(path, {WORDS: words}, [line for line, _ in block], notes=(note,))


def _sentences(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line and the words of each sentence."""
    if is_conllu(path):
        for sentence in read_conllu(path):
            yield sentence.lines[0], list(sentence.words)
    else:
        for block in sentence_blocks(path):
            yield block.line, [cells[0] for cells in block.rows]
