"""Own files of tagged words: columns, lists, spans; every form of tags; every mistake names its place."""

import json
from pathlib import Path

import pytest

from bermo.data.tagged import read_tagged
from bermo.errors import BermoError

WORDS = [["EU", "rejects", "German", "call"], ["Peter", "Blackburn"]]
TAGS = [["B-ORG", "O", "B-MISC", "O"], ["B-PER", "I-PER"]]


def write(folder: Path, name: str, *rows: object) -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def columns(folder: Path, tags: list[list[str]], name: str = "my.conll") -> Path:
    sentences = [
        "\n".join(f"{word} X {tag}" for word, tag in zip(*row, strict=True))
        for row in zip(WORDS, tags, strict=True)
    ]
    path = folder / name
    path.write_text("-DOCSTART- X O\n\n" + "\n\n".join(sentences) + "\n")
    return path


@pytest.mark.parametrize("name", ["my.conll", "my.txt", "my.tsv", "my.bio"])
def test_columns_are_read_by_any_name(tmp_path: Path, name: str) -> None:
    rows = read_tagged(columns(tmp_path, TAGS, name))
    assert (rows.words, rows.tags) == (WORDS, TAGS)


@pytest.mark.parametrize(
    "tags",
    [
        [["I-ORG", "O", "I-MISC", "O"], ["I-PER", "I-PER"]],
        [["S-ORG", "O", "S-MISC", "O"], ["B-PER", "E-PER"]],
        [["U-ORG", "O", "U-MISC", "O"], ["B-PER", "L-PER"]],
    ],
    ids=["IOB1", "BIOES", "BILOU"],
)
def test_every_form_of_entities_becomes_one(tmp_path: Path, tags: list[list[str]]) -> None:
    assert read_tagged(columns(tmp_path, tags)).tags == TAGS


def test_tags_of_words_stay_as_they_are(tmp_path: Path) -> None:
    tags = [["PROPN", "VERB", "ADJ", "NOUN"], ["PROPN", "PROPN"]]
    assert read_tagged(columns(tmp_path, tags)).tags == tags


@pytest.mark.parametrize("names", [("words", "tags"), ("tokens", "ner_tags")])
def test_lists_of_words_and_tags(tmp_path: Path, names: tuple[str, str]) -> None:
    rows = [dict(zip(names, row, strict=True)) for row in zip(WORDS, TAGS, strict=True)]
    read = read_tagged(write(tmp_path, "my.jsonl", *rows))
    assert (read.words, read.tags) == (WORDS, TAGS)


def test_a_word_that_a_span_touches_belongs_to_it(tmp_path: Path) -> None:
    text = "In New York, Peter sat."
    spans = [{"start": 13, "end": 18, "label": "PER"}, {"start": 3, "end": 11, "label": "LOC"}]
    read = read_tagged(
        write(tmp_path, "my.jsonl", {"text": text, "spans": spans}, {"text": "No.", "spans": []})
    )
    assert read.words == [["In", "New", "York,", "Peter", "sat."], ["No."]]
    assert read.tags == [["O", "B-LOC", "I-LOC", "B-PER", "O"], ["O"]]
    listed = write(tmp_path, "listed.jsonl", {"text": text, "entities": [[3, 11, "LOC"], [13, 18, "PER"]]})
    assert list(read_tagged(listed).tags or ())[:1] == [read.tags[0]]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"words": ["a", "b"], "tags": ["O"]}, "2 words and 1 tags"),
        ({"words": [], "tags": []}, "0 words"),
        ({"words": ["a"], "tags": [3]}, "no list of texts"),
        ({"words": "a b", "tags": ["O", "O"]}, "is not JSON"),
        ({"text": "a b", "label": "x"}, 'has the columns "text", "label"'),
        ({"text": " ", "spans": []}, "its text is empty"),
        ({"text": "a b", "spans": True}, "its spans are true, no list"),
        ({"text": "a b", "spans": [{"start": 0, "end": 9, "label": "X"}]}, "holds nothing of 3 letters"),
        ({"text": "a b", "spans": [{"start": 1, "end": 2, "label": "X"}]}, "holds nothing"),
        ({"text": "a b", "spans": [{"start": 0, "label": "X"}]}, "has no start, end and label"),
        ({"text": "a b", "spans": [{"start": True, "end": 1, "label": "X"}]}, "has no start"),
        ({"text": "a b", "spans": [[0, 1, "X"], [0, 3, "Y"]]}, "lies over another"),
        ({"text": "ab c", "spans": [[0, 1, "X"], [1, 2, "Y"]]}, 'two spans touch the word "ab"'),
        ({"words": ["a", "b"], "tags": ["B-X", "VERB"]}, 'the tag "VERB" is none of O, B-TYPE'),
    ],
)
def test_a_mistake_names_its_place(tmp_path: Path, row: object, said: str) -> None:
    with pytest.raises(BermoError, match=r"my\.jsonl") as error:
        read_tagged(write(tmp_path, "my.jsonl", row))
    assert said in str(error.value)


def test_a_word_without_a_tag_and_an_empty_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "my.conll"
    path.write_text("EU B-ORG\nrejects\n")
    with pytest.raises(BermoError, match='line 2: "rejects" has no tag'):
        read_tagged(path)
    path.write_text("-DOCSTART- O\n\n")
    with pytest.raises(BermoError, match="holds no sentence"):
        read_tagged(path)
