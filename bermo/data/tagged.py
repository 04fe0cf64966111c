"""The user's own files for a tagger: words with their tags, or texts with spans.

    EU B-ORG                                     columns: a word first, its tag last, a blank line between
    rejects O                                    sentences (.txt .conll .bio .tsv …)
    1 EU eu PROPN …                              CoNLL-U: the parts of speech of column 4 are the tags
    {"words": ["EU", …], "tags": ["B-ORG", …]}   or tokens and ner_tags
    {"text": "EU rejects …", "spans": [{"start": 0, "end": 2, "label": "ORG"}, …]}    or entities

Tags of entities come out as IOB2, whatever form they had (IOB1, BIOES, BILOU); a file that has none of them
has tags of words, such as parts of speech. A text is split at blanks: a word that a span touches belongs to
it.
"""

import json
import re
from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from bermo.data.conllu import NOTHING, is_conllu, read_conllu
from bermo.data.corpora import to_iob2
from bermo.data.objects import JSON
from bermo.data.packed import kind_of
from bermo.data.read import read_table
from bermo.data.rows import TaggedRows
from bermo.data.table import Table
from bermo.data.word_columns import read_blocks
from bermo.errors import BermoError

WORDS, TAGS, SPANS = ("words", "tokens"), ("tags", "ner_tags", "labels"), ("spans", "entities")
TABLES = (*JSON, ".parquet")
FIRST, INSIDE = {"B": "B", "S": "B", "U": "B"}, {"I": "I", "E": "I", "L": "I"}
ENTITY = re.compile(r"([BIESLU])-(.+)")
EXPECTED = (
    'Expected words and tags ({"words": ["EU", "rejects"], "tags": ["B-ORG", "O"]}), or a text and its spans'
    ' ({"text": "EU rejects", "spans": [{"start": 0, "end": 2, "label": "ORG"}]}).'
)
Sentence = tuple[list[str], list[str]]


def read_tagged(path: Path, is_of_entities: bool = False) -> TaggedRows:
    """Read sentences of words with their tags; every mistake names file and line.

    Tags of another kind than entities' are an error where `is_of_entities`.
    """
    if kind_of(path) in TABLES:
        table = read_table(path)
        sentences = _from_table(table)
        places = [f"{path}, {table.place(index)}" for index in range(len(sentences))]
    elif is_conllu(path):
        sentences, places = _parts_of_speech(path)
    else:
        blocks = read_blocks(path)
        sentences = [([cells[0] for cells in b.rows], [cells[-1] for cells in b.rows]) for b in blocks]
        places = [f"{path}, the sentence from line {block.line} on" for block in blocks]
    if not sentences:
        raise BermoError(f"{path} holds no sentence.")
    tags = [tags for _, tags in sentences]
    if is_of_entities or has_entities({tag for row in tags for tag in row}):
        tags = [_as_iob2(place, row) for place, row in zip(places, tags, strict=True)]
    return TaggedRows([words for words, _ in sentences], tags)


def is_tag(tag: str, tags: Collection[str]) -> bool:
    """Tell whether `tag` is one of `tags`, or an entity's in any form."""
    return tag == "O" or tag in tags or ENTITY.fullmatch(tag) is not None


def has_entities(tags: set[str]) -> bool:
    """Tell whether tags are those of entities, such as B-ORG, and not one of each word."""
    return any(ENTITY.fullmatch(tag) for tag in tags)


def _as_iob2(place: str, tags: Sequence[str]) -> list[str]:
    return to_iob2([_plainer(place, tag) for tag in tags])


def _plainer(place: str, tag: str) -> str:
    """Return a tag of an entity with B or I before its type."""
    if tag == "O":
        return tag
    found = ENTITY.fullmatch(tag)
    if found is None:
        raise BermoError(f'{place}: the tag "{tag}" is none of O, B-TYPE, I-TYPE.')
    return f"{(FIRST | INSIDE)[found[1]]}-{found[2]}"


def _parts_of_speech(path: Path) -> tuple[list[Sentence], list[str]]:
    """Return the sentences of CoNLL-U with the universal part of speech of each word, and their places."""
    sentences = read_conllu(path)
    for sentence in sentences:
        if NOTHING in sentence.upos:
            at = sentence.upos.index(NOTHING)
            raise BermoError(
                f'{path}, line {sentence.lines[at]}: "{sentence.words[at][:40]}" has no part of speech'
                " (column 4), which is the tag that is learned from CoNLL-U. Fill it in. For another column"
                " write a word and its tag a line."
            )
    places = [f"{path}, the sentence from line {sentence.lines[0]} on" for sentence in sentences]
    return [(list(sentence.words), list(sentence.upos)) for sentence in sentences], places


def _from_table(table: Table) -> list[Sentence]:
    words, tags, spans = (next(filter(table.has, names), None) for names in (WORDS, TAGS, SPANS))
    if words is not None and tags is not None:
        columns = zip(table.column(words), table.column(tags), strict=True)
        return [_listed(table, index, *cells) for index, cells in enumerate(columns)]
    if table.has("text") and spans is not None:
        columns = zip(table.column("text"), table.column(spans), strict=True)
        return [_spanned(table, index, *cells) for index, cells in enumerate(columns)]
    there = ", ".join(f'"{name}"' for name in table.columns)
    raise BermoError(f"{table.path} has the columns {there}. {EXPECTED}")


def _listed(table: Table, index: int, words: str, tags: str) -> Sentence:
    lists = [_parse(table, index, cell) for cell in (words, tags)]
    for item in lists:
        if not isinstance(item, list) or not all(isinstance(value, str) for value in item):
            raise _wrong(table, index, "its words or tags are no list of texts")
    if not lists[0] or len(lists[0]) != len(lists[1]):
        raise _wrong(table, index, f"it has {len(lists[0])} words and {len(lists[1])} tags")
    return lists[0], lists[1]


def _spanned(table: Table, index: int, text: str, spans: str) -> Sentence:
    places = [found.span() for found in re.finditer(r"\S+", text)]
    if not places:
        raise _wrong(table, index, "its text is empty")
    tags = ["O"] * len(places)
    listed = _parse(table, index, spans or "[]")
    if not isinstance(listed, list):
        raise _wrong(table, index, f"its spans are {spans[:40]}, no list")
    found = sorted(_span(table, index, text, item) for item in listed)
    for (_, before, _), (after, _, name) in pairwise(found):
        if after < before:
            raise _wrong(table, index, f"its span {name} at {after} lies over another")
    for start, end, name in found:
        inside = [number for number, (a, b) in enumerate(places) if a < end and b > start]
        for number in inside:
            if tags[number] != "O":
                raise _wrong(table, index, f'two spans touch the word "{text[slice(*places[number])]}"')
            tags[number] = f"{'B' if number == inside[0] else 'I'}-{name}"
    return [text[start:end] for start, end in places], tags


def _span(table: Table, index: int, text: str, item: Any) -> tuple[int, int, str]:
    try:
        start, end, name = (item["start"], item["end"], item["label"]) if isinstance(item, dict) else item
    except (KeyError, TypeError, ValueError):
        raise _wrong(table, index, f"its span {str(item)[:60]} has no start, end and label") from None
    are_numbers = all(isinstance(place, int) and not isinstance(place, bool) for place in (start, end))
    if not are_numbers or not isinstance(name, str) or not name:
        raise _wrong(table, index, f"its span {str(item)[:60]} has no start, end and label")
    if not 0 <= start < end <= len(text) or not text[start:end].strip():
        raise _wrong(table, index, f"its span {start} to {end} holds nothing of {len(text)} letters")
    return start, end, name


def _parse(table: Table, index: int, cell: str) -> Any:
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        raise _wrong(table, index, f"{cell[:40]!r} is not JSON") from None


def _wrong(table: Table, index: int, what: str) -> BermoError:
    return BermoError(f"{table.path}, {table.place(index)}: {what}. {EXPECTED}")
