"""Rows with any number of labels: read, divided, scored as scikit-learn does, answered over one half."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import sklearn.metrics

from bermo.data.divide import divide
from bermo.data.evaluation import evaluate
from bermo.data.features import Features
from bermo.data.label_lists import join_labels, read_labels
from bermo.data.load import load_task, own_task
from bermo.data.rows import TextRows
from bermo.data.scoring import decode, empty_answer, score
from bermo.errors import BermoError
from bermo.spec import DataSpec

Write = Callable[[str, str], Path]
Make = Callable[..., Features]
TASK = own_task("multi-label")
LABELS = ("art", "law", "sport")


def load(path: Path, **more: object) -> TextRows:
    return load_task(DataSpec(train=str(path), valid=str(path), **more)).train  # type: ignore[arg-type,return-value]


def some_rows(count: int = 80) -> tuple[TextRows, np.ndarray]:
    """Texts with random labels, some with none."""
    gold = np.random.default_rng(0).random((count, 3)) < 0.4
    labels = [tuple(name for name, has in zip(LABELS, row, strict=True) if has) for row in gold]
    return TextRows(["the cat"] * count, None, labels), gold


def test_cells_are_split_at_the_separator_or_are_lists(write: Write) -> None:
    path = write("a.csv", 'text,label\na,"x, y"\nb,y\nc,\nd,"x,y,x"\n')
    assert load(path, label_separator=",").labels == [("x", "y"), ("y",), (), ("x", "y")]
    path = write("b.csv", "text,label\na,x|y\nb,y\nc,\n")
    assert load(path, task="own/multi-label").labels == [("x", "y"), ("y",), ()]
    assert load(path).labels == [("x", "y"), ("y",), ()]
    with pytest.raises(BermoError, match=r"the same label"):
        load(write("c.csv", "text,label\na,x|y\nb,y|x\n"), task="own/multi-label")
    with pytest.raises(BermoError, match=r"No training row has a label"):
        load(write("d.csv", "text,label\na,\nb,\n"), task="own/multi-label")


def test_a_file_in_which_no_row_has_several_labels_is_noted(write: Write) -> None:
    path = str(write("a.csv", 'text,label\na,"x, y"\nb,y\n'))
    notes = load_task(DataSpec(train=path, valid=path, task="own/multi-label")).notes
    assert any("no row has more than one label" in note for note in notes)


def test_what_is_joined_is_read_again() -> None:
    for labels in (("a", "b"), ("a|b", "c"), ()):
        assert read_labels([join_labels(labels)], None) == [labels]
    assert read_labels(["a|b"], None, known={"a|b"}) == [("a|b",)]


def test_a_divided_file_keeps_every_label_in_training() -> None:
    rows, _ = some_rows(200)
    labels = [*rows.labels, *[("rare", "art")] * 3, ("rarer", "law")]
    rows = TextRows([f"text {k}" for k in range(len(labels))], None, labels)
    parts = divide(rows, 0.3, "my.csv")
    assert {name for i in parts.valid for name in labels[i]} <= {n for i in parts.train for n in labels[i]}
    assert sorted(parts.train + parts.valid) == list(range(204))
    share = sum("sport" in labels[i] for i in parts.valid) / sum("sport" in row for row in labels)
    assert share == pytest.approx(0.3, abs=0.08)


def test_scores_are_scikit_learns(make: Make) -> None:
    rows, gold = some_rows()
    logits = list(np.random.default_rng(1).normal(size=gold.shape) + 2 * gold - 1)
    features = make(rows, TASK, LABELS)
    given = np.array(logits) > 0
    assert np.array_equal(features.targets, gold)
    scores = score(features, logits)
    assert scores.main == "micro_f1"
    for average in ("micro", "macro"):
        expected = sklearn.metrics.f1_score(gold, given, average=average)
        assert scores.values[f"{average}_f1"] == pytest.approx(100 * expected)
    assert scores.values["subset_accuracy"] == pytest.approx(
        100 * sklearn.metrics.accuracy_score(gold, given)
    )
    found = evaluate(features, logits)
    report = sklearn.metrics.classification_report(
        gold, given, target_names=LABELS, output_dict=True, zero_division=0
    )
    for item in found.classes:
        assert (item.precision, item.recall, item.f1) == pytest.approx(
            tuple(100 * report[item.name][name] for name in ("precision", "recall", "f1-score"))
        )
        assert item.support == report[item.name]["support"]
    assert found.values["precision"] == pytest.approx(100 * report["micro avg"]["precision"])
    assert found.interval[0] < found.score < found.interval[1]


def test_a_label_that_the_model_cannot_give_is_missed(make: Make) -> None:
    features = make(TextRows(["a", "a"], None, [("art", "new"), ()]), TASK, ("art", "law", "new"))
    found = evaluate(features, [np.array([1.0, -1.0]), np.array([-1.0, -1.0])])
    assert found.values["recall"] == pytest.approx(50)
    assert (found.classes[2].recall, found.classes[2].support) == (0.0, 1)


def test_answers_are_the_labels_over_one_half_the_likeliest_first(make: Make) -> None:
    features = make(TextRows(["a", "a"]), TASK, LABELS)
    first, second = decode(
        features, [np.array([0.1, -3.0, 2.0]), np.array([-1.0, 0.0, -900.0])], gives_all=True
    )
    assert first["labels"] == ["sport", "art"]
    assert first["probability"] == pytest.approx([1 / (1 + np.exp(-2)), 1 / (1 + np.exp(-0.1))])
    assert set(first["probabilities"]) == set(LABELS)
    assert (second["labels"], second["probability"]) == ([], [])
    assert second["probabilities"]["sport"] == 0.0
    assert empty_answer(TASK, LABELS) == {"labels": None, "probability": None}
