"""An evaluation is scikit-learn's report for classes, and official for every other kind."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import sklearn.metrics

from bermo.data.evaluation import evaluate
from bermo.data.features import Features
from bermo.data.intervals import wilson
from bermo.data.load import own_task
from bermo.data.rows import ChoiceRows, SpanRows, TaggedRows, TextRows
from bermo.data.tasks import find_task

Make = Callable[..., Features]
NAMES = ("ant", "bee", "cat", "dog")


def some_answers(make: Make, labels: tuple[str, ...], count: int = 60) -> tuple[Features, list[np.ndarray]]:
    """Texts of random classes, and logits that are right more often than not."""
    random = np.random.default_rng(0)
    gold = random.integers(0, len(labels), count)
    features = make(TextRows(["a cat"] * count, None, [labels[k] for k in gold]), labels=labels)
    return features, list(random.normal(size=(count, len(labels))) + np.eye(len(labels))[gold])


def test_classes_have_scikit_learns_report_and_confusion_matrix(make: Make) -> None:
    features, logits = some_answers(make, NAMES)
    found = evaluate(features, logits)
    gold, predicted = np.asarray(features.targets), np.argmax(logits, axis=1)
    report = sklearn.metrics.classification_report(
        gold, predicted, target_names=NAMES, output_dict=True, zero_division=0
    )
    for item in found.classes:
        expected = report[item.name]
        assert item.precision == pytest.approx(100 * expected["precision"])
        assert item.recall == pytest.approx(100 * expected["recall"])
        assert item.f1 == pytest.approx(100 * expected["f1-score"])
        assert item.support == expected["support"]
    assert found.values["weighted_f1"] == pytest.approx(100 * report["weighted avg"]["f1-score"])
    assert found.confusion == tuple(map(tuple, sklearn.metrics.confusion_matrix(gold, predicted).tolist()))
    assert sum(item.given for item in found.classes) == found.num_rows == 60
    right = int(np.sum(gold == predicted))
    assert found.interval == pytest.approx(tuple(100 * value for value in wilson(right, 60)))
    assert found.score == pytest.approx(100 * right / 60)


@pytest.mark.parametrize(("name", "metric"), [("cola", "matthews"), ("mrpc", "mean")])
def test_a_score_that_is_no_share_of_rows_gets_a_bootstrap(make: Make, name: str, metric: str) -> None:
    features, logits = some_answers(make, ("0", "1"))
    found = evaluate(replace(features, task=find_task(name)), logits)
    assert (found.metric, found.interval_by) == (metric, "bootstrap")
    assert found.interval[0] < found.score < found.interval[1]


def test_a_class_that_the_model_cannot_give_counts_as_wrong(make: Make) -> None:
    features = make(TextRows(["a", "a", "a"], None, ["no", "yes", "new"]), labels=("no", "yes", "new"))
    found = evaluate(features, [np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.array([1.0, 0.0])])
    assert found.score == pytest.approx(100 * 2 / 3)
    assert found.confusion == ((1, 0, 0), (0, 1, 0), (1, 0, 0))
    assert (found.classes[2].recall, found.classes[2].support) == (0.0, 1)


def test_numbers_get_their_errors_in_their_own_units(make: Make) -> None:
    gold = [1.0, 2.0, 5.0, 4.0, 3.0]
    features = make(TextRows(["a"] * 5, None, gold), own_task("regression"), ())
    found = evaluate(features, [np.array([value + 0.5]) for value in gold])
    assert found.errors == pytest.approx({"mse": 0.25, "mae": 0.5})
    assert found.values["pearson"] == pytest.approx(100)
    assert found.interval == pytest.approx((100.0, 100.0))


def test_tags_are_scored_by_type(make: Make) -> None:
    words = [["mark", "lives", "in", "berlin"], ["germany", "is", "big", "."]]
    tags = [["B-PER", "O", "O", "B-LOC"], ["B-LOC", "O", "O", "O"]]
    labels = ("O", "B-LOC", "B-PER")
    features = make(TaggedRows(words, tags), find_task("conll2003"), labels)
    given = [["B-PER", "O", "O", "B-PER"], ["B-LOC", "O", "O", "O"]]
    logits = []
    for row in range(2):
        word_of = features.words[features.starts[row] : features.starts[row + 1]]
        logits.append(np.eye(3)[[labels.index(given[row][k]) if k >= 0 else 0 for k in word_of]])
    found = evaluate(features, logits)
    listed = {item.name: (item.precision, item.recall, item.support, item.given) for item in found.classes}
    assert listed == {"LOC": (100.0, 50.0, 2, 1), "PER": (50.0, 100.0, 1, 2)}
    assert found.score == pytest.approx(100 * 2 / 3)
    assert found.interval[0] <= found.score <= found.interval[1]


def test_spans_and_choices_have_their_score_and_an_interval(make: Make) -> None:
    rows = SpanRows(["1"], ["who lives ?"], ["mark lives in berlin"], [[("mark", 0)]])
    features = make(rows, own_task("span"), (), stride=8)
    length = int(features.lengths[0])
    at = int(np.flatnonzero(features.spans[:, 0] == 0)[0])
    found = evaluate(features, [np.stack([np.eye(length)[at]] * 2)])
    assert (found.metric, found.values["exact_match"], found.interval) == ("f1", 100.0, (100.0, 100.0))
    choices = ChoiceRows(["a", "a"], [["cat", "dog"]] * 2, ["0", "1"])
    features = make(choices, own_task("choice"), ("0", "1"))
    found = evaluate(features, [np.array([1.0, 0.0])] * 2)
    assert (found.score, found.classes, found.confusion) == (50.0, (), ())
