"""Own files: columns are recognised and shown; whatever would spoil a training is refused before it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bermo.data.load import TaskData, load_task
from bermo.data.rows import TextRows
from bermo.errors import BermoError
from bermo.spec import DataSpec

Write = Callable[[str, str], Path]
GOOD = "text\tlabel\none\tyes\ntwo\tno\n"
GOOD_NUMBERS = "text\tlabel\nx\t1\ny\t2\n"


def _load(write: Write, train: str, valid: str | None = None, **options: Any) -> TaskData:
    spec = DataSpec(
        train=str(write("train.tsv", train)),
        valid=str(write("valid.tsv", valid or train)),
        **options,
    )
    return load_task(spec)


@pytest.mark.parametrize(
    ("header", "text", "label"),
    [
        ("text\tlabel", ("text",), "label"),
        ("Review\tSentiment", ("Review",), "Sentiment"),
        ("category\tcontent", ("content",), "category"),
        ("phrase\tlabel", ("phrase",), "label"),
        ("text\tverdict", ("text",), "verdict"),
        ("label\tpremise\thypothesis", ("premise", "hypothesis"), "label"),
        ("sentence1\tsentence2\tscore", ("sentence1", "sentence2"), "score"),
        ("id\ttext_a\ttext_b\tclass", ("text_a", "text_b"), "class"),
    ],
)
def test_columns_are_recognised_by_their_names(
    write: Write, header: str, text: tuple[str, ...], label: str
) -> None:
    width = header.count("\t") + 1
    rows = ["\t".join(f"{word}{i}" for i in range(width)) for word in ("x", "y")]
    data = _load(write, "\n".join([header, *rows]))
    assert (data.text, data.label) == (text, label)
    assert f'label from "{label}"' in data.notes[0]
    assert isinstance(data.train, TextRows)
    assert (data.train.second is not None) == (len(text) == 2)


def test_given_columns_are_used(write: Write) -> None:
    data = _load(write, "text\tother\ty2\na\tb\t1\nc\td\t0\n", text=("other",), label="y2")
    assert data.train == TextRows(["b", "d"], None, ["1", "0"])


def test_broken_numbers_of_many_values_are_regression_and_others_are_classes(write: Write) -> None:
    measured = "text\tscore\n" + "".join(f"t{i}\t{i / 7:.3f}\n" for i in range(1, 40))
    stars = "text\tscore\n" + "".join(f"t{i}\t{i % 10 / 2}\n" for i in range(100))
    whole = "text\tscore\n" + "".join(f"t{i}\t{i % 5}.0\n" for i in range(100))
    assert _load(write, measured).task.kind == "regression"
    assert _load(write, measured).labels == ()
    assert _load(write, stars).task.kind == "classification"
    assert _load(write, whole).labels == ("0", "1", "2", "3", "4")
    assert _load(write, whole, task="own/regression").train.labels[:2] == [0.0, 1.0]  # type: ignore[union-attr,index]


def test_numbers_are_ordered_by_size(write: Write) -> None:
    data = _load(write, "text\tlabel\n" + "".join(f"t\t{n}\n" for n in (10, 2, -1)))
    assert data.labels == ("-1", "2", "10")


@pytest.mark.parametrize(
    ("train", "valid", "options", "message"),
    [
        (GOOD, "text\tlabel\none\tyess\n", {}, r'label "yess" that the training data lacks.*"yes"'),
        (
            GOOD,
            "text\tlabel\none\tperhaps\ntwo\tunclear\n",
            {},
            r'"perhaps" that the training data lacks, and 1 more such\. Known: no, yes\. Correct it, add',
        ),
        (
            "text\tlabel\n" + "".join(f"t{n}\tlabel {n}\n" * 3 for n in range(100)),
            "text\tlabel\none\t?\n",
            {},
            r"label 43, label 44, … \(100 in all\)",
        ),
        (GOOD, GOOD, {"limit": 1}, r"among the first 1 rows \(--limit\)"),
        ("text\tlabel\na\t1\nb\t1\n", None, {}, r'same label, "1".*at least two classes'),
        ("text\tlabel\na\t1\n  \t0\n", None, {}, r'train\.tsv, line 3: the text \(column "text"\)'),
        ("text\tlabel\na\t1\nb\t\n", None, {}, r"train\.tsv, line 3: the label"),
        (GOOD, "text\tlabel\nx\t\n", {}, r"valid\.tsv, line 2: the label"),
        (GOOD, "text\tlable\nx\tyes\n", {}, r'valid\.tsv has no column "label"'),
        ("great film\t1\nbad film\t0\n", None, {}, r"no column has a usual name for the text.*add a line"),
        (
            "id\ttext\ttoxic\trude\n1\ta\t0\t1\n2\tb\t1\t0\n",
            None,
            {},
            r'2 hold 0 and 1 alone \("toxic", "rude"\).*into one column "labels", with \| between',
        ),
        (GOOD, None, {"text": ("txt",)}, r'no column "txt".*"text"'),
        (GOOD, None, {"text": ("text", "label", "x")}, r'no column "x"'),
        ("a\tb\tc\tlabel\n1\t2\t3\t4\n", None, {"text": ("a", "b", "c")}, r"3 text columns were given"),
        (
            "text\tlabel\na\t2\nb\t2\n",
            GOOD_NUMBERS,
            {"task": "own/regression"},
            r"the same number, 2\.0\. There is",
        ),
        ("text\tlabel\na\tx\nb\ty\n", None, {"task": "own/regression"}, r'line 2: the label "x" is not'),
        (GOOD, None, {"task": "sts"}, r'no task "sts".*"stsb"'),
    ],
)
def test_what_would_spoil_a_training_is_refused(
    write: Write, train: str, valid: str | None, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(BermoError, match=message):
        _load(write, train, valid, **options)


def test_a_label_column_of_free_text_is_refused(write: Write) -> None:
    free = "text\tlabel\n" + "".join(f"a\tanswer {i}\n" for i in range(100))
    with pytest.raises(BermoError, match="100 different values in 100 rows"):
        _load(write, free)


def test_a_missing_file_option_is_named() -> None:
    with pytest.raises(BermoError, match="No train file was given"):
        load_task(DataSpec())
    with pytest.raises(BermoError, match="needs its files: pass --data"):
        load_task(DataSpec(task="sst2"))


def test_limit_caps_training_rows_only(write: Write) -> None:
    data = _load(write, GOOD * 1 + "three\tno\n", limit=2)
    assert (len(data.train), len(data.valid)) == (2, 3)


def test_generated_tasks_have_disjoint_splits_and_obey_the_limit() -> None:
    data = load_task(DataSpec(task="box/tense", limit=500))
    assert isinstance(data.train, TextRows)
    assert isinstance(data.valid, TextRows)
    assert (len(data.train), len(data.valid)) == (500, 500)
    assert not set(data.train.first) & set(data.valid.first)
    assert data.digest == load_task(DataSpec(task="box/tense", limit=500)).digest
