"""Rows in memory, in every form that people have them, become the table that their file would be."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from bermo.errors import BermoError
from bermo.estimators.inputs import labelled, unlabelled

TEXTS, LABELS = ["a fine film", "no fun"], ["good", "bad"]


class Series:
    """The part of a series of pandas that is read."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def tolist(self) -> list[Any]:
        return self.values


class Frame:
    """The part of a frame of pandas that is read."""

    def __init__(self, **columns: list[Any]) -> None:
        self.held, self.columns = columns, list(columns)

    def __getitem__(self, name: str) -> Series:
        return Series(self.held[name])


class Lazy(Frame):
    """The part of a lazy frame of polars that is looked at."""

    def collect(self) -> Frame:
        raise AssertionError


class Dataset:
    """The part of a `datasets.Dataset` that is read."""

    def __init__(self, names: list[str], **columns: Any) -> None:
        self.held, self.column_names = columns, list(columns)
        self.features = {"text": object(), "label": type("ClassLabel", (), {"names": names})}

    def __getitem__(self, name: str) -> list[Any]:
        return self.held[name]


@pytest.mark.parametrize(
    ("texts", "labels"),
    [
        (TEXTS, LABELS),
        (tuple(TEXTS), np.array(LABELS)),
        (np.array(TEXTS), np.array(LABELS, dtype=object)),
        (iter(TEXTS), iter(LABELS)),
        (Series(TEXTS), Series(LABELS)),
        (Frame(text=TEXTS, label=LABELS), None),
        (Frame(text=TEXTS), Series(LABELS)),
        ({"text": TEXTS, "label": LABELS}, None),
        (Dataset(["bad", "good"], text=TEXTS, label=[1, 0]), None),
        (Dataset(["bad", "good"], text=TEXTS, label=list(torch.tensor([1, 0]))), None),
        (pa.table({"text": TEXTS, "label": LABELS}), None),
        (pa.chunked_array([TEXTS]), pa.array(LABELS)),
    ],
    ids=[
        *("list", "tuple", "array", "iterator", "series", "frame", "frame and series", "dict", "dataset"),
        *("dataset of tensors", "table of pyarrow", "arrays of pyarrow"),
    ],
)
def test_every_form_is_the_same_table(texts: Any, labels: Any) -> None:
    columns = labelled(texts, labels, "rows")
    assert columns.table().columns == {"text": TEXTS, "label": LABELS}
    assert columns.labels("label") == {"good": "good", "bad": "bad"}


def test_a_class_number_below_zero_is_a_missing_label() -> None:
    columns = labelled(Dataset(["bad", "good"], text=TEXTS, label=[1, -1]), None, "rows")
    assert columns.table().columns["label"] == ["good", ""]


@pytest.mark.parametrize("name", ["pandas", "polars", "datasets"])
def test_frames_and_datasets_are_read_where_their_library_is_installed(name: str) -> None:
    library = pytest.importorskip(name)
    make = library.Dataset.from_dict if name == "datasets" else library.DataFrame
    made = make({"text": TEXTS, "label": LABELS})
    for texts, labels in ((made, None), (made["text"], made["label"])):
        assert labelled(texts, labels, "rows").table().columns == {"text": TEXTS, "label": LABELS}


def test_pairs_are_tuples_lists_or_two_columns_of_an_array() -> None:
    pairs = [("a", "b"), ("c", "d")]
    for given in (pairs, [list(pair) for pair in pairs], np.array(pairs)):
        assert unlabelled(given, "rows").table().columns == {"text_a": ["a", "c"], "text_b": ["b", "d"]}
    named = unlabelled(pairs, "rows", ("premise", "hypothesis")).table()
    assert named.columns == {"premise": ["a", "c"], "hypothesis": ["b", "d"]}


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([1, 0], {"1": 1, "0": 0}),
        ([1.0, 0.0], {"1": 1.0, "0": 0.0}),
        ([True, False], {"true": True, "false": False}),
        (np.array([1, 0], dtype=np.int8), {"1": 1, "0": 0}),
        ([np.int64(1), np.int64(0)], {"1": 1, "0": 0}),
        ([" good ", "bad"], {"good": " good ", "bad": "bad"}),
    ],
    ids=str,
)
def test_labels_keep_their_values_by_the_texts_that_a_file_would_hold(labels: Any, expected: Any) -> None:
    named = labelled(TEXTS, labels, "rows").labels("label")
    assert named == expected
    assert [type(value) for value in named.values()] == [type(value) for value in expected.values()]


def test_what_is_missing_is_an_empty_cell() -> None:
    odd = [None, float("nan"), type("NAType", (), {})(), "a"]
    assert unlabelled(odd, "rows").table().columns == {"text": ["", "", "", "a"]}


@pytest.mark.parametrize(
    ("texts", "labels", "sentence"),
    [
        ("a fine film", LABELS, "texts is one text, 'a fine film', but a list of texts was expected"),
        (TEXTS, "good", "labels is one text, 'good', but a list with one for each text was expected"),
        (
            {"train": {"text": TEXTS}, "test": Frame(text=TEXTS)},
            None,
            r'The rows are several tables: "train", "test". Pass one of them, such as data\["train"\]',
        ),
        (Lazy(text=TEXTS), None, r"The rows are a Lazy, whose rows are not read yet. .* data.collect\(\)"),
        (set(TEXTS), LABELS, "texts is a set, which has no order. Pass a list"),
        (TEXTS, None, "The rows have no labels. Give them as the second argument"),
        (TEXTS, ["good"], "There are 2 texts but 1 label. Give one label for each text, or a list of them"),
        (["a", 5], LABELS, r"texts\[1\] is 5, of type int, but a text was expected"),
        ([("a", "b"), ("c",)], LABELS, r"texts\[1\] is .*but 2 texts were expected in every row"),
        (
            TEXTS,
            np.zeros((2, 3)),
            r"labels has the shape \(2, 3\), but one value or one list a row was expected",
        ),
        (TEXTS, [["good", ["new"]], ["bad"]], r"labels\[0\] is \['good', \['new'\]\], but a label or a list"),
        (TEXTS, ["good", {"bad": 1}], r"labels\[1\] is {'bad': 1}, but a label or a list of labels was"),
        (["a", ("b", "c")], LABELS, r"texts\[1\] is \('b', 'c'\), of type tuple, but a text was expected"),
        (5, LABELS, "texts is int, but a list was expected"),
        (None, LABELS, "texts is NoneType, but a list was expected"),
        ({}, None, "Columns of equal length were expected, but got rows: none"),
        ([], [], "There are no rows"),
        (
            {"text": TEXTS, "label": ["good"]},
            None,
            "equal length were expected, but got rows: text 2, label 1",
        ),
    ],
)
def test_other_input_is_refused_with_a_sentence(texts: Any, labels: Any, sentence: str) -> None:
    with pytest.raises(BermoError, match=sentence):
        labelled(texts, labels, "rows")


def test_a_column_is_found_whatever_its_capitals() -> None:
    frame = {"Text": TEXTS, "LABEL": [1, 0]}
    assert labelled(frame, None, "rows").labels("label") == {"1": 1, "0": 0}


@pytest.mark.parametrize("kind", [list, tuple, set, np.array])
def test_lists_of_labels_are_read_as_a_file_would_hold_them(kind: Any) -> None:
    columns = labelled(["a", "b", "c"], [kind([2, 3]), kind([]), None], "rows")
    assert columns.table().columns["label"] == ["[2, 3]", "[]", ""]
    assert columns.has_several("label")
    assert columns.labels("label") == {"2": 2, "3": 3}


def test_two_labels_that_are_written_alike_are_refused() -> None:
    with pytest.raises(BermoError, match="1 and '1' are written alike"):
        labelled(TEXTS, [1, "1"], "rows").labels("label")
