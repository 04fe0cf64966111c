"""Predictions to all that a test file says of a model: every metric, each class, confusions, an interval.

    evaluate(features, predictions) -> Evaluation      scores in percent, errors of numbers in their own units

The main score is the task's own, as in training. Its 95 % interval is Wilson's where it is a share of rows,
else a bootstrap over rows.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from bermo.data import metrics
from bermo.data.answers import best_answers
from bermo.data.features import Features
from bermo.data.intervals import Indices, Interval, bootstrap, wilson
from bermo.data.mistakes import Calibration, Mistake, answers_of, calibrate, surest_mistakes
from bermo.data.ranking import rank
from bermo.data.rows import SpanRows, TaggedRows
from bermo.data.scoring import Predictions, labels_given, own_inputs, score, tags_of
from bermo.data.tasks import Kind

Counts = npt.NDArray[np.int64]
"""Right, given and wanted, in this order: of a class, or one line for each row."""


@dataclass(frozen=True, kw_only=True)
class ClassScores:
    """One class, label or type of entity, in percent; `support` in the file, `given` by the model."""

    name: str
    precision: float
    recall: float
    f1: float
    support: int
    given: int


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """A model's answers to a test file; `confusion[i][j]` are the rows of class i that were given class j."""

    kind: Kind
    num_rows: int
    metric: str
    score: float
    interval: Interval
    interval_by: Literal["Wilson", "bootstrap"]
    values: dict[str, float]
    errors: dict[str, float] = field(default_factory=dict)
    classes: tuple[ClassScores, ...] = ()
    confusion: tuple[tuple[int, ...], ...] = ()
    calibration: Calibration | None = None
    mistakes: tuple[Mistake, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Details:
    """What a kind of task adds to its scores."""

    interval: Interval
    interval_by: Literal["Wilson", "bootstrap"] = "bootstrap"
    values: dict[str, float] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    classes: tuple[ClassScores, ...] = ()
    confusion: tuple[tuple[int, ...], ...] = ()
    calibration: Calibration | None = None
    mistakes: tuple[Mistake, ...] = ()


def evaluate(features: Features, predictions: Predictions) -> Evaluation:
    """Compare predictions with the rows' answers in every way that the kind of task knows."""
    scores = score(features, predictions)
    match features.task.kind:
        case "regression":
            details = _numbers(features, predictions)
        case "multi-label":
            details = _labels(features, predictions)
        case "tagging":
            details = _tags(features, predictions)
        case "span":
            details = _spans(features, predictions)
        case "embedding" | "reranker":
            details = _Details(interval=rank(features, predictions).interval(scores.main))
        case _:
            details = _classes(features, predictions)
    low, high = details.interval
    interval, interval_by = (100 * low, 100 * high), details.interval_by
    if features.task.own_metric is not None:
        interval, interval_by = _own_interval(features, predictions), "bootstrap"
    return Evaluation(
        kind=features.task.kind,
        num_rows=len(features.rows),
        metric=scores.main,
        score=scores.score,
        interval=interval,
        interval_by=interval_by,
        values=scores.values | details.values,
        errors=details.errors,
        classes=details.classes,
        confusion=details.confusion,
        calibration=details.calibration,
        mistakes=details.mistakes,
    )


def _own_interval(features: Features, predictions: Predictions) -> Interval:
    """Return the interval of a metric of the user's own, which is asked for each resample of the rows."""
    own = features.task.own_metric
    assert own is not None
    truth, answers = own_inputs(features, predictions)

    def statistic(rows: Indices) -> float:
        drawn = rows.tolist()
        return own.value(features.task.kind, [truth[row] for row in drawn], [answers[row] for row in drawn])

    return bootstrap(statistic, len(truth))


def class_scores(name: str, right: int, given: int, wanted: int) -> ClassScores:
    """Return precision, recall and F1 of one class, 0 where they are undefined."""
    return ClassScores(
        name=name,
        precision=100 * right / given if given else 0.0,
        recall=100 * right / wanted if wanted else 0.0,
        f1=200 * right / (given + wanted) if given + wanted else 0.0,
        support=int(wanted),
        given=int(given),
    )


def _classes(features: Features, predictions: Predictions) -> _Details:
    predicted, gold = np.argmax(np.stack(predictions), axis=1), np.asarray(features.targets)
    interval = _class_interval(features.task.metric, predicted, gold)
    if features.task.kind == "choice":
        return _Details(interval=interval, interval_by="Wilson")
    size = len(features.labels)
    matrix = np.bincount(gold * size + predicted, minlength=size * size).reshape(size, size)
    totals = zip(features.labels, *_totals(matrix), strict=True)
    listed = tuple(class_scores(*row) for row in totals)
    weighted = sum(item.f1 * item.support for item in listed) / len(gold)
    answers = answers_of(features, predictions)
    return _Details(
        interval=interval,
        interval_by="Wilson" if features.task.metric == "accuracy" else "bootstrap",
        values={"weighted_f1": weighted},
        classes=listed,
        confusion=tuple(tuple(row) for row in matrix.tolist()),
        calibration=calibrate(answers),
        mistakes=surest_mistakes(features, answers),
    )


def _labels(features: Features, predictions: Predictions) -> _Details:
    given_NC, gold_NC = labels_given(features, predictions)
    counts_C3 = metrics.counts_of_labels(given_NC, gold_NC)
    listed = tuple(class_scores(k, *row) for k, row in zip(features.labels, counts_C3.tolist(), strict=True))
    all_labels = class_scores("", *counts_C3.sum(0).tolist())
    is_share = features.task.metric == "subset_accuracy"
    return _Details(
        interval=_label_interval(features.task.metric, given_NC, gold_NC),
        interval_by="Wilson" if is_share else "bootstrap",
        values={"precision": all_labels.precision, "recall": all_labels.recall},
        classes=listed,
    )


def _label_interval(metric: str, given_NC: metrics.Bools, gold_NC: metrics.Bools) -> Interval:
    match metric:
        case "subset_accuracy":
            return wilson(int((given_NC == gold_NC).all(1).sum()), len(gold_NC))
        case "macro_f1":
            return bootstrap(
                lambda rows: metrics.macro_f1_of_labels(given_NC[rows], gold_NC[rows]), len(gold_NC)
            )
        case _:
            return f1_interval(metrics.counts_of_rows(given_NC, gold_NC))


def _totals(matrix: Counts) -> tuple[list[int], list[int], list[int]]:
    """Return how often each class was right, given and wanted."""
    return np.diag(matrix).tolist(), matrix.sum(0).tolist(), matrix.sum(1).tolist()


def _class_interval(metric: str, predicted: Counts, gold: Counts) -> Interval:
    def statistic(rows: Indices) -> float:
        a, b = predicted[rows], gold[rows]
        match metric:
            case "matthews":
                return metrics.matthews(a, b)
            case "macro_f1":
                return metrics.macro_f1(a, b)
            case "f1":
                return metrics.f1(a, b)
            case _:
                return (metrics.accuracy(a, b) + metrics.f1(a, b)) / 2

    if metric == "accuracy":
        return wilson(int(np.sum(predicted == gold)), len(gold))
    return bootstrap(statistic, len(gold))


def _numbers(features: Features, predictions: Predictions) -> _Details:
    predicted, gold = np.stack(predictions)[:, 0].astype(np.float64), np.asarray(features.targets)
    gap = predicted - gold

    def statistic(rows: Indices) -> float:
        a, b = predicted[rows], gold[rows]
        match features.task.metric:
            case "pearson":
                return metrics.pearson(a, b)
            case "spearman":
                return metrics.spearman(a, b)
            case _:
                return (metrics.pearson(a, b) + metrics.spearman(a, b)) / 2

    errors = {"mse": float(np.mean(gap * gap)), "mae": float(np.mean(np.abs(gap)))}
    return _Details(interval=bootstrap(statistic, len(gold)), errors=errors)


def _tags(features: Features, predictions: Predictions) -> _Details:
    assert isinstance(features.rows, TaggedRows)
    tags = list(zip(tags_of(features, predictions), features.rows.tags or (), strict=True))
    pairs = [(metrics.entities(ours), metrics.entities(theirs)) for ours, theirs in tags]
    right, given, wanted = Counter[str](), Counter[str](), Counter[str]()
    for ours, theirs in pairs:
        right.update(name for name, *_ in ours & theirs)
        given.update(name for name, *_ in ours)
        wanted.update(name for name, *_ in theirs)
    listed = tuple(class_scores(k, right[k], given[k], wanted[k]) for k in sorted(given | wanted))
    counts_N3 = np.array([(len(a & b), len(a), len(b)) for a, b in pairs], dtype=np.int64)
    words_N2 = np.array([(sum(map(str.__eq__, a, b)), len(b)) for a, b in tags], dtype=np.int64)
    return _Details(interval=_tag_interval(features.task.metric, counts_N3, words_N2), classes=listed)


def _tag_interval(metric: str, counts_N3: Counts, words_N2: Counts) -> Interval:
    """Return the interval of a share of sums over the rows, or of F1."""
    if metric == "f1":
        return f1_interval(counts_N3)
    right, total = {
        "precision": (counts_N3[:, 0], counts_N3[:, 1]),
        "recall": (counts_N3[:, 0], counts_N3[:, 2]),
        "accuracy": (words_N2[:, 0], words_N2[:, 1]),
    }[metric]
    return bootstrap(lambda rows: float(right[rows].sum() / max(1, total[rows].sum())), len(right))


def f1_interval(counts_N3: Counts) -> Interval:
    """Return the interval of the F1 over all that the rows count as right, given and wanted."""

    def statistic(rows: Indices) -> float:
        return float(metrics.f1_of_counts(counts_N3[rows].sum(0)))

    return bootstrap(statistic, len(counts_N3))


def _spans(features: Features, predictions: Predictions) -> _Details:
    assert isinstance(features.rows, SpanRows)
    gold: Sequence[Sequence[str]] = [[text for text, _ in golds] for golds in features.rows.answers or ()]
    answers = best_answers(features, predictions)
    found = metrics.answer_scores(answers, gold, features.task.has_no_answer)
    values = found.exact_match if features.task.metric == "exact_match" else found.f1
    return _Details(interval=bootstrap(lambda rows: float(values[rows].mean()), len(gold)))
