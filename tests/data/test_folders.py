"""Named tasks: every layout their files come in gives the same rows."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bermo.data.load import load_task
from bermo.data.rows import ChoiceRows, SpanRows, TaggedRows, TextRows
from bermo.errors import BermoError
from bermo.spec import DataSpec

Write = Callable[[str, str], Path]
PAIR = TextRows(['a "b', "c"], ["d", "e"], ["0", "1"])


def _table(*rows: str) -> str:
    return "".join("\t".join(row.split("|")) + "\n" for row in rows)


LAYOUTS = {
    "cola": (
        "train.tsv",
        "dev.tsv",
        _table("gj04|0|*|a", "gj04|1||c"),
        TextRows(["a", "c"], None, ["0", "1"]),
    ),
    "sst2": (
        "train.tsv",
        "dev.tsv",
        _table("sentence|label", "a|0", "c|1"),
        TextRows(["a", "c"], None, ["0", "1"]),
    ),
    "mrpc": (
        "msr_paraphrase_train.txt",
        "msr_paraphrase_test.txt",
        "\ufeff" + _table("Quality|#1 ID|#2 ID|#1 String|#2 String", '0|1|2|a "b|d', "1|3|4|c|e"),
        PAIR,
    ),
    "qqp": (
        "train.tsv",
        "dev.tsv",
        _table(
            "id|qid1|qid2|question1|question2|is_duplicate",
            '1|2|3|a "b|d|0',
            "broken|row",
            "7|8|9|x||1",
            "4|5|6|c|e|1",
        ),
        PAIR,
    ),
    "wnli": (
        "train.tsv",
        "dev.tsv",
        _table("index|sentence1|sentence2|label", '0|a "b|d|0', "1|c|e|1"),
        PAIR,
    ),
    "stsb": (
        "sts-train.tsv",
        "sts-dev.tsv",
        _table("main|MSRvid|2012|1|0.000|a|d", "main|MSRvid|2012|2|2.5|c|e|more|more"),
        TextRows(["a", "c"], ["d", "e"], [0.0, 2.5]),
    ),
    "mnli": (
        "train.tsv",
        "dev_matched.tsv",
        _table("index|sentence1|sentence2|label1|gold_label", "0|a|d|x|neutral", "1|c|e|x|entailment"),
        TextRows(["a", "c"], ["d", "e"], ["neutral", "entailment"]),
    ),
    "mnli-mismatched": (
        "train.tsv",
        "dev_mismatched.tsv",
        _table("index|premise|hypothesis|gold_label", "0|a|d|neutral", "1|c|e|entailment"),
        TextRows(["a", "c"], ["d", "e"], ["neutral", "entailment"]),
    ),
    "qnli": (
        "train.tsv",
        "dev.tsv",
        _table("index|question|sentence|label", "0|a|d|entailment", "1|c|e|not_entailment"),
        TextRows(["a", "c"], ["d", "e"], ["entailment", "not_entailment"]),
    ),
    "rte": (
        "train.tsv",
        "dev.tsv",
        _table("index|sentence1|sentence2|label", "0|a|d|entailment", "1|c|e|not_entailment"),
        TextRows(["a", "c"], ["d", "e"], ["entailment", "not_entailment"]),
    ),
    "swag": (
        "train.csv",
        "val.csv",
        ",video-id,sent1,sent2,ending0,ending1,ending2,ending3,label\n"
        '0,v,"A man, old.",He,runs,sits,eats,sleeps,2\n',
        ChoiceRows(["A man, old."], [["He runs", "He sits", "He eats", "He sleeps"]], ["2"]),
    ),
    "conll2003": (
        "eng.train",
        "eng.testa",
        "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nMark NNP I-NP I-PER\nfell VB I-VP O\n\n"
        "In IN O O\nBonn NNP O I-LOC\nRom NNP O B-LOC\n",
        TaggedRows(
            [["EU", "Mark", "fell"], ["In", "Bonn", "Rom"]],
            [["B-ORG", "B-PER", "O"], ["O", "B-LOC", "B-LOC"]],
        ),
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_official_layouts_are_read(write: Write, tmp_path: Path, name: str) -> None:
    train, valid, content, rows = LAYOUTS[name]
    write(train, content)
    write(valid, content)
    data = load_task(DataSpec(task=name, folder=str(tmp_path)))
    assert data.train == rows
    assert data.valid == rows
    assert train in data.notes[0]


def test_broken_rows_of_qqp_are_counted(write: Write, tmp_path: Path) -> None:
    train, valid, content, _ = LAYOUTS["qqp"]
    write(train, content)
    write(valid, content)
    notes = load_task(DataSpec(task="qqp", folder=str(tmp_path))).notes
    assert any("train.tsv: 2 broken rows" in note for note in notes)


def test_glues_root_folder_is_enough(write: Write, tmp_path: Path) -> None:
    for name in ("train.tsv", "dev.tsv"):
        write(f"SST-2/{name}", LAYOUTS["sst2"][2])
    assert len(load_task(DataSpec(task="sst2", folder=str(tmp_path))).train) == 2


def test_a_file_without_splits_is_cut_by_text_alone(write: Write, tmp_path: Path) -> None:
    header = "id|qid1|qid2|question1|question2|is_duplicate"
    rows = [f"{i}|1|2|question {i}|other {i}|{i % 2}" for i in range(200)]
    write("qqp_part.tsv", _table(header, *rows))
    first = load_task(DataSpec(task="qqp", folder=str(tmp_path)))
    write("qqp_part.tsv", _table(header, *rows[::-1], "900|1|2|new|row|1"))
    second = load_task(DataSpec(task="qqp", folder=str(tmp_path)))
    assert isinstance(first.valid, TextRows)
    assert isinstance(second.valid, TextRows)
    assert 5 < len(first.valid) < 40
    assert set(first.valid.first) == set(second.valid.first) - {"new"}


def _squad(answer: object, start: object) -> str:
    question = {
        "id": "q1",
        "question": "who?",
        "answers": [{"text": answer, "answer_start": start}],
    }
    none = {"id": "q2", "question": "what?", "answers": [], "is_impossible": True}
    paragraph = {"context": "one two one", "qas": [question, none]}
    return json.dumps({"version": "v2.0", "data": [{"title": "t", "paragraphs": [paragraph]}]})


def test_squad_is_read_and_a_wrong_start_is_mended_in_training(write: Write, tmp_path: Path) -> None:
    write("train-v2.0.json", _squad("two", 0))
    write("dev-v2.0.json", _squad("one", 8))
    data = load_task(DataSpec(task="squad2", folder=str(tmp_path)))
    assert isinstance(data.train, SpanRows)
    assert isinstance(data.valid, SpanRows)
    assert data.train.answers == [[("two", 4)], []]
    assert data.valid.answers == [[("one", 8)], []]


def test_an_answer_that_is_not_in_its_passage_is_an_error(write: Write, tmp_path: Path) -> None:
    write("train-v2.0.json", _squad("three", 0))
    write("dev-v2.0.json", _squad("one", 8))
    with pytest.raises(BermoError, match='answer "three" of question q1 does not occur'):
        load_task(DataSpec(task="squad2", folder=str(tmp_path)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"rows": []}', "not in SQuAD's form"),
        ("[]", "not in SQuAD's form"),
        ('{"data": [{"paragraphs": [{"context": "a", "qas": [3]}]}]}', "not in SQuAD's form"),
        (_squad(7, 0), "an answer is 7, not a text.*after 1 questions"),
        (_squad(None, 0), "an answer is None, not a text"),
        (_squad(["two"], 0), r"an answer is \['two'\], not a text"),
        (_squad("two", "here"), "not in SQuAD's form.*invalid literal"),
        (_squad("two", float("inf")), "not in SQuAD's form.*infinity"),
        ("[" * 100_000, "nested too deeply to be read"),
    ],
)
def test_what_is_not_in_squads_form_is_one_sentence(
    write: Write, tmp_path: Path, content: str, message: str
) -> None:
    write("train-v2.0.json", content)
    write("dev-v2.0.json", _squad("one", 8))
    with pytest.raises(BermoError, match=message):
        load_task(DataSpec(task="squad2", folder=str(tmp_path)))


def test_a_folder_without_a_training_file_says_what_was_looked_for(write: Write, tmp_path: Path) -> None:
    write("dev.tsv", LAYOUTS["qnli"][2])
    message = r"no training file of task qnli: expected train\.tsv, but it holds dev\.tsv"
    with pytest.raises(BermoError, match=message):
        load_task(DataSpec(task="qnli", folder=str(tmp_path)))
    with pytest.raises(BermoError, match="There is no folder"):
        load_task(DataSpec(task="qnli", folder=str(tmp_path / "nowhere")))


def test_given_files_replace_those_of_the_folder(write: Write, tmp_path: Path) -> None:
    content = LAYOUTS["rte"][2]
    train, valid = write("my.tsv", content), write("dev.tsv", content)
    data = load_task(DataSpec(task="rte", folder=str(tmp_path), train=str(train)))
    assert "train from my.tsv, valid from dev.tsv" in data.notes[0]
    load_task(DataSpec(task="rte", train=str(train), valid=str(valid)))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("alone", r'line 2: "alone" has no tag'),
        ("word X-PER", r'the sentence from line 1 on: the tag "X-PER"'),
    ],
)
def test_a_broken_tag_line_is_named(write: Write, tmp_path: Path, line: str, message: str) -> None:
    write("train.txt", f"a O\n{line}\n")
    write("valid.txt", "a O\n")
    with pytest.raises(BermoError, match=message):
        load_task(DataSpec(task="conll2003", folder=str(tmp_path)))


def test_a_label_outside_a_tasks_own_is_refused(write: Write, tmp_path: Path) -> None:
    write("train.tsv", _table("sentence|label", "a|0", "b|1", "c|positive"))
    write("dev.tsv", _table("sentence|label", "a|0"))
    with pytest.raises(BermoError, match='training data has the label "positive"'):
        load_task(DataSpec(task="sst2", folder=str(tmp_path)))
