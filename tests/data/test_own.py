"""The user's own files: divided where there is one, with notes before training, refused where it must be."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bermo.data.load import TaskData, load_task
from bermo.errors import BermoError
from bermo.fields import check
from bermo.spec import DataSpec

Write = Callable[[str, str], Path]
MANY = "text,label\n" + "".join(f"text number {i},{'ab'[i % 2]}\n" for i in range(200))


def _load(path: Path, valid: Path | None = None, **options: Any) -> TaskData:
    return load_task(check(DataSpec(train=str(path), valid=valid and str(valid), **options)))


def test_one_file_alone_is_divided_and_says_so(write: Write) -> None:
    data = _load(write("my.csv", MANY))
    assert (len(data.train), len(data.valid)) == (180, 20)
    assert data.notes[-1] == (
        "my.csv is divided, since --valid names no file: 180 rows for training, 20 for validation"
        " (--split 0.1)"
    )
    assert data.digest == _load(write("my.csv", MANY)).digest
    assert len(_load(write("my.csv", MANY), split=0.25).valid) == 50
    assert len(_load(write("my.csv", MANY), limit=30).train) == 30


def test_split_and_a_validation_file_exclude_each_other(write: Write) -> None:
    path = write("my.csv", MANY)
    with pytest.raises(BermoError, match="--split divides the training file, but --valid names"):
        _load(path, path, split=0.2)
    with pytest.raises(BermoError, match="split must be over 0 and under 1"):
        _load(path, split=1.0)


def test_few_rows_without_a_text_are_left_out_and_named(write: Write) -> None:
    data = _load(write("my.csv", MANY.replace("text number 5,", " ,").replace("text number 9,", ",")))
    assert len(data.train) + len(data.valid) == 198
    assert "my.csv: 2 of 200 rows have no text and are left out (line 7, line 11)" in data.notes


def test_many_rows_without_a_text_and_any_without_a_label_are_refused(write: Write) -> None:
    rows = "text,label\n" + ",a\nb,b\n" * 30
    with pytest.raises(
        BermoError, match=r"line 2: the text .* is empty.*29 other rows \(line 4, line 6, …\)"
    ):
        _load(write("my.csv", rows))
    with pytest.raises(
        BermoError, match=r'line 4: the label \(column "label"\) is missing.*1 other row \(line 5\)'
    ):
        _load(write("my.csv", "text,label\na,x\nb,y\nc,\nd, \n"))
    with pytest.raises(BermoError, match=r"line 2: the label 'x\\x1b\[1m' holds a control character"):
        _load(write("my.csv", "text,label\na,x\x1b[1m\nb,y\n"))


def test_only_rows_that_are_trained_on_can_be_in_the_validation_file_too(write: Write) -> None:
    train, valid = write("my.csv", MANY), write("dev.csv", "text,label\ntext number 5,a\nnew,b\n")
    assert any("1 of 2 texts is also in my.csv" in doubt for doubt in _load(train, valid).doubts)
    assert not _load(train, valid, limit=4).doubts


def test_what_is_doubtful_is_noted(write: Write) -> None:
    train = write("my.csv", MANY + "text number 0,b\nlast,A\n")
    data = _load(train, write("dev.tsv", MANY))
    assert "apart by comma" in " ".join(data.notes)
    doubts = " ".join(data.doubts)
    for part in ("capitals or blanks", "several labels", "all 200 validation texts are also"):
        assert part in doubts


def test_rows_of_one_list_are_classes_and_of_several_are_multi_label(write: Write) -> None:
    one = "".join(f'{{"text": "t{i}", "label": ["{"ab"[i % 2]}"]}}\n' for i in range(100))
    assert _load(write("my.jsonl", one)).labels == ("a", "b")
    assert _load(write("my.jsonl", one)).task.kind == "classification"
    several = write("my.jsonl", one + '{"text": "x", "label": ["a", "b"]}\n{"text": "y", "label": []}\n')
    data = _load(several)
    assert (data.task.kind, data.labels) == ("multi-label", ("a", "b"))
    assert any("1 of 102 rows have no label at all" in note for note in data.notes)
    piped = MANY.replace(",a\n", ",a|b\n")
    assert _load(write("my.csv", piped)).task.kind == "multi-label"
    assert _load(write("my.csv", piped), task="own/classification").labels == ("a|b", "b")


def test_several_labels_where_training_has_one_a_row_are_refused(write: Write) -> None:
    valid = write("dev.csv", MANY.replace(",a\n", ",a|b\n"))
    with pytest.raises(BermoError, match=r"dev\.csv, line 2: the label a\|b is 2 labels, but every row"):
        _load(write("my.csv", MANY), valid)


def test_whole_numbers_are_a_regression_where_it_is_asked_for(write: Write) -> None:
    path = write("my.csv", "text,stars\n" + "".join(f"t{i},{i % 5}\n" for i in range(200)))
    data = _load(path)
    assert data.task.kind == "classification"
    assert any("pass --task own/regression" in doubt for doubt in data.doubts)
    assert _load(path, task="own/regression").task.kind == "regression"


def test_a_home_folder_is_found(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(write("my.csv", MANY).parent))
    monkeypatch.setenv("USERPROFILE", str(write("my.csv", MANY).parent))
    assert len(load_task(DataSpec(train="~/my.csv")).train) == 180


SQUAD = '{"version": "1.1", "data": [{"title": "a", "paragraphs": [{"context": "c", "qas": []}]}]}'


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("my.txt", "EU B-ORG\nrejects O\n\nPeter B-PER\n", "tagging"),
        ("my.conllu", "1\tgo\tgo\tVERB\t_\t_\t0\troot\t_\t_\n", "tagging"),
        ("my.jsonl", '{"tokens": ["EU"], "ner_tags": ["B-ORG"]}\n', "tagging"),
        ("my.jsonl", '{"text": "EU", "entities": []}\n', "tagging"),
        ("my.json", SQUAD, "span"),
        ("my.jsonl", '{"question": "a", "context": "b", "answers": {"text": ["b"]}}\n', "span"),
    ],
)
def test_a_file_of_tags_or_questions_names_the_kind_that_reads_it(
    write: Write, name: str, content: str, kind: str
) -> None:
    with pytest.raises(BermoError, match=rf"{name}.*Pass --kind {kind}\.$"):
        _load(write(name, content))


@pytest.mark.parametrize(
    "options", [{"text": ("text",), "label": "entities"}, {"task": "own/classification"}]
)
def test_columns_and_kinds_that_are_named_are_obeyed(write: Write, options: dict[str, Any]) -> None:
    lines = "".join(f'{{"text": "text {i}", "entities": "{"ab"[i % 2]}"}}\n' for i in range(200))
    assert _load(write("my.jsonl", lines), **options).task.kind == "classification"


def test_a_long_label_is_shortened_in_an_error(write: Write) -> None:
    train = MANY.replace(",a\n", f",{'long ' * 500}\n")
    valid = "text,label\na," + "other " * 500 + "\n"
    with pytest.raises(BermoError, match="that the training data lacks") as raised:
        _load(write("my.csv", train), write("valid.csv", valid))
    assert len(str(raised.value)) < 500


def test_numbers_with_a_decimal_comma_are_no_classes(write: Write) -> None:
    rows = "text;label\n" + "".join(f"text number {i};{i % 50},25\n" for i in range(200))
    path = write("my.csv", rows)
    with pytest.raises(
        BermoError, match=r'numbers with a decimal comma, such as "0,25".*a point, 0\.25.*--kind class'
    ):
        _load(path)
    with pytest.raises(BermoError, match=r'line 2: the label "0,25" is not a number\. .* a point, 0\.25\.'):
        _load(path, task="own/regression")
    assert _load(path, task="own/classification").task.kind == "classification"
