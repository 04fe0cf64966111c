"""Predictions to official scores, and to answers a user reads.

Predictions come one array for each feature, in feature order, without padding: (C,) for classes, labels and
choices, (1,) for a number, (length, C) for tags, (2, length) for spans, (texts, D) for the vectors of the
texts of a row. All scores are in percent, correlations too.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bermo.data import metrics
from bermo.data.answers import best_answers
from bermo.data.features import Features
from bermo.data.own_metric import truth_of
from bermo.data.ranking import main_metric, rank
from bermo.data.rows import SpanRows, TaggedRows
from bermo.data.tasks import Task
from bermo.errors import BermoError

Predictions = Sequence[npt.NDArray[np.floating]]


@dataclass(frozen=True)
class TaskScores:
    """Scores in percent by name, the name of the main one, and how often each answer was given."""

    main: str
    values: dict[str, float]
    predicted: Counter[str] = field(default_factory=Counter)

    @property
    def score(self) -> float:
        """The main score."""
        return self.values[self.main]


def score(features: Features, predictions: Predictions) -> TaskScores:
    """Compare predictions with the rows' answers by the task's official metrics."""
    _check_count(features, predictions)
    is_searched = features.task.kind == "embedding" and features.num_choices > 1
    if features.targets is None and not is_searched:
        raise BermoError("These rows have no answers to score against.")
    match features.task.kind:
        case "regression":
            values, predicted = _score_numbers(features, predictions), Counter[str]()
        case "multi-label":
            values, predicted = _score_labels(features, predictions)
        case "tagging":
            values, predicted = _score_tags(features, predictions)
        case "span":
            values, predicted = _score_spans(features, predictions)
        case "embedding" | "reranker":
            values, predicted = rank(features, predictions).values, Counter[str]()
        case _:
            values, predicted = _score_classes(features, predictions)
    percent = {name: 100 * value for name, value in values.items()}
    kind, own = features.task.kind, features.task.own_metric
    if own is not None:
        truth, answers = own_inputs(features, predictions)
        return TaskScores(own.name, percent | {own.name: own.value(kind, truth, answers)}, predicted)
    main = main_metric(kind, values) if kind in ("embedding", "reranker") else features.task.metric
    return TaskScores(main, percent, predicted)


def own_inputs(features: Features, predictions: Predictions) -> tuple[list[Any], list[dict[str, Any]]]:
    """Return the right answer and the given one of each row, for a metric of the user's own.

    A broken training is judged by its loss: what is no number in its answers counts as 0.
    """
    finite = [np.nan_to_num(array, nan=0.0, posinf=0.0, neginf=0.0) for array in predictions]
    if features.task.kind in ("classification", "multi-label"):
        # Labels that the model cannot give come last.
        features = replace(features, labels=features.labels[: finite[0].shape[-1]])
    return truth_of(features.rows), decode(features, finite, gives_all=True)


def _check_count(features: Features, predictions: Predictions) -> None:
    if len(predictions) != len(features):
        raise BermoError(
            f"There are {len(predictions)} predictions, but {len(features)} features."
            " Give one array for each feature, in their order."
        )


def _score_classes(features: Features, predictions: Predictions) -> tuple[dict[str, float], Counter[str]]:
    predicted, gold = np.argmax(np.stack(predictions), axis=1), np.asarray(features.targets)
    values = {"accuracy": metrics.accuracy(predicted, gold)}
    if features.task.kind == "classification":
        values["macro_f1"] = metrics.macro_f1(predicted, gold)
        values["matthews"] = metrics.matthews(predicted, gold)
        if len(features.labels) == 2:
            values["f1"] = metrics.f1(predicted, gold)
        if features.task.metric == "mean":
            values["mean"] = (values["accuracy"] + values["f1"]) / 2
    return values, Counter(_class_name(features, int(index)) for index in predicted)


def _class_name(features: Features, index: int) -> str:
    return features.labels[index] if features.labels else str(index)


def labels_given(features: Features, predictions: Predictions) -> tuple[metrics.Bools, metrics.Bools]:
    """Return which labels the model gives (probability over 1/2) and which the rows have, (N, C) each."""
    gold_NC = np.asarray(features.targets).astype(np.bool_)
    given_NC = np.zeros_like(gold_NC)
    positive = np.stack(predictions) > 0
    # Labels that the model cannot give come last.
    given_NC[:, : positive.shape[1]] = positive
    return given_NC, gold_NC


def _score_labels(features: Features, predictions: Predictions) -> tuple[dict[str, float], Counter[str]]:
    given_NC, gold_NC = labels_given(features, predictions)
    values = {
        "micro_f1": float(metrics.f1_of_counts(metrics.counts_of_rows(given_NC, gold_NC).sum(0))),
        "macro_f1": metrics.macro_f1_of_labels(given_NC, gold_NC),
        "subset_accuracy": float((given_NC == gold_NC).all(1).mean()),
    }
    names = np.array(features.labels, dtype=object)
    return values, Counter(" and ".join(names[row]) or "no label" for row in given_NC)


def _score_numbers(features: Features, predictions: Predictions) -> dict[str, float]:
    predicted, gold = np.stack(predictions)[:, 0], np.asarray(features.targets)
    if not np.isfinite(predicted).all():
        # A training that broke is judged by its loss; its answers follow nothing.
        return {"pearson": 0.0, "spearman": 0.0, "mean": 0.0}
    pearson, spearman = metrics.pearson(predicted, gold), metrics.spearman(predicted, gold)
    return {"pearson": pearson, "spearman": spearman, "mean": (pearson + spearman) / 2}


def _score_tags(features: Features, predictions: Predictions) -> tuple[dict[str, float], Counter[str]]:
    assert isinstance(features.rows, TaggedRows)
    gold = features.rows.tags or ()
    tags = tags_of(features, predictions)
    entities = metrics.entity_scores(tags, gold)
    pairs = [pair for a, b in zip(tags, gold, strict=True) for pair in zip(a, b, strict=True)]
    right = sum(a == b for a, b in pairs) / max(len(pairs), 1)
    values = {"f1": entities.f1, "precision": entities.precision, "recall": entities.recall}
    if not any(tag.startswith("B-") for tag in features.labels):
        values = {}
    return values | {"accuracy": right}, Counter(a for a, _ in pairs)


def tags_of(features: Features, predictions: Predictions) -> list[list[str]]:
    """Return a tag for each word; a word that lost its tokens to `max_length` gets O."""
    assert isinstance(features.rows, TaggedRows)
    assert features.words is not None
    outside = "O" if "O" in features.labels else features.labels[0]
    rows = []
    for index, words in enumerate(features.rows.words):
        tags = [outside] * len(words)
        word_of = features.words[features.starts[index] : features.starts[index + 1]]
        best = np.argmax(predictions[index], axis=1)
        for token in np.flatnonzero(word_of >= 0):
            tags[word_of[token]] = features.labels[best[token]]
        rows.append(tags)
    return rows


def _score_spans(features: Features, predictions: Predictions) -> tuple[dict[str, float], Counter[str]]:
    assert isinstance(features.rows, SpanRows)
    assert features.rows.answers is not None
    has_no_answer = features.task.has_no_answer
    answers = best_answers(features, predictions)
    gold = [[text for text, _ in golds] for golds in features.rows.answers]
    scores = metrics.answer_scores(answers, gold, has_no_answer)
    values = {"exact_match": float(scores.exact_match.mean()), "f1": float(scores.f1.mean())}
    if has_no_answer:
        for name, part in (
            ("answerable", scores.is_answerable),
            ("no_answer", ~scores.is_answerable),
        ):
            if part.any():
                values[f"{name}_exact_match"] = float(scores.exact_match[part].mean())
                values[f"{name}_f1"] = float(scores.f1[part].mean())
    return values, Counter("answer" if text else "no answer" for text in answers)


def decode(features: Features, predictions: Predictions, gives_all: bool = False) -> list[dict[str, Any]]:
    """Return one answer for each row, in plain JSON values; `gives_all` adds the probability of every class,
    of every choice, or of each word's tag.
    """
    _check_count(features, predictions)
    match features.task.kind:
        case "regression":
            return [{"value": float(row[0])} for row in predictions]
        case "multi-label":
            return [_over_half(features.labels, row, gives_all) for row in predictions]
        case "tagging":
            return _decode_tags(features, predictions, gives_all)
        case "span":
            return [{"answer": text} for text in best_answers(features, predictions)]
        case "embedding":
            return [{"vector": row.tolist()} for row in predictions]
        case "reranker":
            return [{"score": float(sigmoid(row[:1])[0])} for row in predictions]
        case "choice":
            return [_likeliest("choice", range(len(row)), row, gives_all) for row in predictions]
        case _:
            return [_likeliest("label", features.labels, row, gives_all) for row in predictions]


def empty_answer(task: Task, labels: Sequence[str], gives_all: bool = False) -> dict[str, Any]:
    """Return the answer to an empty row, in the form of `decode`."""
    match task.kind:
        case "regression":
            return {"value": None}
        case "multi-label":
            return {"labels": None, "probability": None} | _no_probabilities(labels, gives_all)
        case "tagging":
            return {"words": [], "tags": []} | ({"probability": []} if gives_all else {})
        case "span":
            return {"answer": None}
        case "embedding":
            return {"vector": None}
        case "reranker":
            return {"score": None}
        case "choice":
            return {"choice": None, "probability": None} | ({"probabilities": {}} if gives_all else {})
        case _:
            return {"label": None, "probability": None} | _no_probabilities(labels, gives_all)


def _no_probabilities(labels: Sequence[str], gives_all: bool) -> dict[str, Any]:
    return {"probabilities": dict.fromkeys(labels)} if gives_all else {}


def _decode_tags(features: Features, predictions: Predictions, gives_all: bool) -> list[dict[str, Any]]:
    assert isinstance(features.rows, TaggedRows)
    pairs = zip(features.rows.words, tags_of(features, predictions), strict=True)
    answers: list[dict[str, Any]] = [{"words": list(words), "tags": tags} for words, tags in pairs]
    if gives_all:
        for index, answer in enumerate(answers):
            answer["probability"] = _tag_probabilities(features, index, predictions[index])
    return answers


def _tag_probabilities(
    features: Features, index: int, logits: npt.NDArray[np.floating]
) -> list[float | None]:
    """Return the probability of each word's tag, None for a word that lost its tokens to `max_length`."""
    assert isinstance(features.rows, TaggedRows)
    assert features.words is not None
    found: list[float | None] = [None] * len(features.rows.words[index])
    word_of = features.words[features.starts[index] : features.starts[index + 1]]
    for token in np.flatnonzero(word_of >= 0):
        found[word_of[token]] = float(softmax(logits[token]).max())
    return found


def _likeliest(
    key: str, names: Sequence[Any], logits: npt.NDArray[np.floating], gives_all: bool
) -> dict[str, Any]:
    probabilities = softmax(logits)
    index = int(np.argmax(probabilities))
    answer = {key: names[index], "probability": float(probabilities[index])}
    if gives_all:
        answer["probabilities"] = dict(zip(map(str, names), probabilities.tolist(), strict=True))
    return answer


def _over_half(names: Sequence[str], logits: npt.NDArray[np.floating], gives_all: bool) -> dict[str, Any]:
    """Return the labels over probability 1/2, the likeliest first, with the probability of each."""
    probabilities = sigmoid(logits)
    order = [int(index) for index in np.argsort(-logits, kind="stable") if logits[index] > 0]
    answer: dict[str, Any] = {
        "labels": [names[index] for index in order],
        "probability": [float(probabilities[index]) for index in order],
    }
    if gives_all:
        answer["probabilities"] = dict(zip(names, probabilities.tolist(), strict=True))
    return answer


def sigmoid(logits: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Return the probability of each label by itself."""
    # The form by tanh overflows nowhere.
    probabilities: npt.NDArray[np.float64] = 0.5 * (1 + np.tanh(0.5 * logits.astype(np.float64)))
    return probabilities


def softmax(logits: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Return probabilities over the last axis."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    probabilities: npt.NDArray[np.float64] = shifted / shifted.sum(axis=-1, keepdims=True)
    return probabilities


def total_variation(
    one: npt.NDArray[np.floating], other: npt.NDArray[np.floating]
) -> npt.NDArray[np.floating]:
    """½ Σ|p − q| over the last axis: how far apart two sets of probabilities are."""
    return 0.5 * np.abs(one - other).sum(-1)
