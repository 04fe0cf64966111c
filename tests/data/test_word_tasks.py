"""Tasks of words: labelled spans from treebanks and columns, parts that share no sentence, clear refusals."""

from pathlib import Path

import pytest

from bermo.data.word_columns import marks_spans, read_columns, spans_of
from bermo.data.word_tasks import (
    choose_word_tasks,
    evenly,
    memorise,
    open_source,
    read_word_task,
    tasks_of,
)
from bermo.errors import BermoError
from tests.trees import entities, treebank


@pytest.fixture
def trees(tmp_path: Path) -> Path:
    path = tmp_path / "my.conllu"
    path.write_text(treebank(60))
    return path


def test_a_file_is_cut_into_parts_that_share_no_sentence(trees: Path) -> None:
    trees.write_text(treebank(60) + treebank(10))
    source = open_source(trees)
    parts = [set(part) for part in source.words]
    assert [len(part) for part in source.parts] == [48, 6, 6]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 60
    assert open_source(trees).words == source.words


def test_a_folder_holds_its_parts(tmp_path: Path) -> None:
    for name, count in (("x-ud-train", 40), ("x-ud-dev", 20), ("x-ud-test", 12)):
        (tmp_path / f"{name}.conllu").write_text(treebank(count))
    source = open_source(tmp_path, limit=8)
    assert [len(part) for part in source.parts] == [8, 2, 8]
    assert "8 of 40 train sentences" in " ".join(source.notes)
    (tmp_path / "y-train.conllu").write_text(treebank(3))
    with pytest.raises(BermoError, match=r"several: x-ud-train.conllu, y-train.conllu"):
        open_source(tmp_path)


def test_labels_are_those_of_the_file(trees: Path) -> None:
    source = open_source(trees)
    assert tasks_of(source) == ["upos", "deprel", "tree", "Degree", "Number", "Tense", "VerbForm"]
    first = source.parts[0][0]
    relations = read_word_task("deprel", source).parts[0]
    assert relations.heads is not None
    own = [k for k, number in enumerate(relations.sentences) if number == 0]
    assert [relations.labels[k] for k in own][:3] == ["det", "nsubj", "det"]
    assert [relations.heads[k][0] for k in own][:2] == [1, 2]
    assert len(own) == len(first.words) - 1
    number = read_word_task("Number", source)
    assert number.labels == ("Plur", "Sing")
    assert all(a + 1 == b for a, b in number.parts[0].spans)


def test_spans_are_those_of_the_marks() -> None:
    assert spans_of(["B-A", "I-A", "B-A", "O", "I-B", "I-A"]) == [
        (0, 2, "A"),
        (2, 3, "A"),
        (4, 5, "B"),
        (5, 6, "A"),
    ]
    assert spans_of(["O"]) == []
    assert not marks_spans([["O", "NN"]])
    assert not marks_spans([["O"]])


def test_columns_have_names_by_their_number(tmp_path: Path) -> None:
    path = tmp_path / "some.txt"
    path.write_text("-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n")
    assert read_columns(path)[0].labels["entity"] == ("I-ORG", "O")
    path.write_text(entities(40))
    data = read_word_task("entity", open_source(path))
    assert data.labels == ("LOC", "PER")
    assert {b - a for a, b in data.parts[0].spans} == {1, 2}
    for wrong, words in (
        ("a\n", "no tag"),
        ("a O\nb X O\n", "got 3 columns"),
        ("-DOCSTART- O\n", "no sen"),
    ):
        path.write_text(wrong)
        with pytest.raises(BermoError, match=words):
            read_columns(path)


def test_tasks_that_are_not_there_are_errors(trees: Path, tmp_path: Path) -> None:
    source = open_source(trees)
    assert [name for name, _ in choose_word_tasks("all", [source])] == ["upos", "Number", "Tense", "deprel"]
    with pytest.raises(BermoError, match=r'no task "Numbr".* Did you mean "Number"'):
        choose_word_tasks("Numbr", [source])
    with pytest.raises(BermoError, match="every word of Degree has the label"):
        read_word_task("Degree", source)
    trees.write_text(treebank(4))
    with pytest.raises(BermoError, match=r"holds 4 different sentence"):
        open_source(trees)
    with pytest.raises(BermoError, match="train part was expected"):
        open_source(tmp_path)


def test_choosing_is_even_and_memorising_takes_the_most_frequent(trees: Path) -> None:
    assert evenly(range(10), 4) == [0, 2, 5, 7]
    known, usual = memorise(read_word_task("upos", open_source(trees)).parts[0])
    assert known["the"] == "DET"
    assert usual in ("DET", "NOUN")
