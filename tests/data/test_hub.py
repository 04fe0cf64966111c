"""Datasets of the hub become rows; one without the extra or a split is an error."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from bermo.data.load import load_task
from bermo.data.rows import SpanRows, TaggedRows, TextRows
from bermo.errors import BermoError
from bermo.spec import DataSpec


class _Split:
    """What a split of the datasets package offers to us."""

    def __init__(self, columns: dict[str, list[Any]], features: dict[str, Any]) -> None:
        self.columns, self.column_names = columns, list(columns)
        self.features = {name: features.get(name) for name in columns}

    def __getitem__(self, name: str) -> list[Any]:
        return self.columns[name]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


def _fake_hub(monkeypatch: pytest.MonkeyPatch, splits: dict[str, _Split]) -> list[tuple[Any, ...]]:
    calls: list[tuple[Any, ...]] = []

    def load_dataset(*arguments: Any) -> dict[str, _Split]:
        calls.append(arguments)
        return splits

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return calls


def test_a_hub_dataset_is_read_with_its_class_names(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"label": SimpleNamespace(names=["bad", "good"])}
    split = _Split({"text": ["a", "b"], "label": [1, 0]}, names)
    calls = _fake_hub(monkeypatch, {"train": split, "test": split})
    data = load_task(DataSpec(hub="owner/name:small"))
    assert calls == [("owner/name", "small")]
    assert data.train == TextRows(["a", "b"], None, ["good", "bad"])
    assert data.labels == ("bad", "good")
    assert '"test"' in data.notes[0]


def test_hub_spans_and_tags_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"text": ["b"], "answer_start": [2]}
    split = _Split({"id": ["1"], "question": ["q"], "context": ["a b"], "answers": [answer]}, {})
    _fake_hub(monkeypatch, {"train": split, "validation": split})
    data = load_task(DataSpec(task="squad", hub="squad"))
    assert data.train == SpanRows(["1"], ["q"], ["a b"], [[("b", 2)]])
    names = SimpleNamespace(feature=SimpleNamespace(names=["O", "B-X"]))
    split = _Split({"tokens": [["a", "b"]], "ner_tags": [[0, 1]]}, {"ner_tags": names})
    _fake_hub(monkeypatch, {"train": split, "validation": split})
    tagged = load_task(DataSpec(task="conll2003", hub="conll"))
    assert tagged.train == TaggedRows([["a", "b"]], [["O", "B-X"]])


def test_a_hub_dataset_without_the_extra_or_a_split_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(BermoError, match=r"bermo\[hub\]"):
        load_task(DataSpec(hub="owner/name"))
    _fake_hub(monkeypatch, {"train": _Split({"text": ["a"]}, {})})
    with pytest.raises(BermoError, match="has the splits train, but"):
        load_task(DataSpec(hub="owner/name"))
