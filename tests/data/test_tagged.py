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


CONLLU = (
    "# sent_id = 1\n# text = Don't go\n1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "1\tDo\tdo\tAUX\tVB\t_\t3\taux\t_\tSpaceAfter=No\n2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_\n"
    "3\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\t_\n\n1\t#\t#\tSYM\t#\t_\t0\troot\t_\t_\n"
)


@pytest.mark.parametrize("name", ["my.conllu", "my.txt", "my.conll"])
def test_a_treebank_gives_its_words_with_their_parts_of_speech(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(CONLLU)
    rows = read_tagged(path)
    assert rows.words == [["Do", "n't", "go"], ["#"]]
    assert rows.tags == [["AUX", "PART", "VERB"], ["SYM"]]


def test_a_treebank_without_parts_of_speech_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "my.conllu"
    path.write_text(CONLLU.replace("PART", "_"))
    with pytest.raises(BermoError, match=r'my\.conllu, line 5: "n\'t" has no part of speech \(column 4\)'):
        read_tagged(path)


def test_lines_of_different_widths_are_no_words_with_tags(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("the film was fine\nI liked it\n")
    with pytest.raises(BermoError, match=r"texts\.txt, line 2: got 3 columns, but the first word has 4"):
        read_tagged(path)


def test_a_word_with_a_blank_is_read_where_tabs_are_between_the_columns(tmp_path: Path) -> None:
    path = tmp_path / "my.tsv"
    path.write_text("about\tO\n1 000\tB-NUM\n1\u00a0000\tI-NUM\nmen\tO\n")
    assert read_tagged(path).words == [["about", "1 000", "1\u00a0000", "men"]]
