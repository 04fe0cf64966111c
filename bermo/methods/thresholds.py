"""Where a model says yes: the threshold of each label, or of the second of two classes, by validation rows.

    labels        each label by itself: where its F1 is highest; a label of under 5 rows keeps 1/2
    two classes   where the task's metric is highest

A threshold is a shift of the logits, so that a model answers as before where they are over 0: the shift is
added to the bias of the saved head, and every export, server and program decides by it. The probability that
is then printed is over 1/2 just where the answer is yes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from bermo.data.features import Features
from bermo.data.scoring import Predictions, score, sigmoid
from bermo.data.tasks import TaskData
from bermo.errors import BermoError

FEWEST = 5
"""Validation rows that a label must have (and lack) for a threshold of its own."""
MOST_SAID = 6
MOST_TRIED = 200
"""Thresholds that are tried for two classes: the middles between so many of the rows' logits."""


def check_thresholds(is_tuned: bool, data: TaskData) -> None:
    """Refuse thresholds of what has none."""
    kind, count = data.task.kind, len(data.labels)
    if is_tuned and not (kind == "multi-label" or (kind == "classification" and count == 2)):
        what = f"{count} classes" if kind == "classification" else kind
        raise BermoError(
            f"--tune-thresholds is for several labels a row or two classes, not for {what}. Leave it out;"
            " --class-weights helps rare classes."
        )


def best_shift(features: Features, predictions: Predictions) -> np.ndarray:
    """Return what is added to each logit (C,) so that a label or class is given from its threshold on."""
    logits_NC = np.stack(predictions).astype(np.float64)
    if features.task.kind == "multi-label":
        gold_NC = np.asarray(features.targets).astype(np.bool_)
        return np.array([-_best_of_label(*column) for column in zip(logits_NC.T, gold_NC.T, strict=True)])
    return np.array([0.0, -_best_of_two(features, logits_NC)])


def say_thresholds(labels: Sequence[str], shift_C: np.ndarray) -> str:
    """Say from which probability, as it was before the shift, each label (or the second class) is given."""
    shown = list(zip(labels, sigmoid(-shift_C), strict=True))
    listed = ", ".join(f"{label} {value:.2f}" for label, value in shown[:MOST_SAID])
    more = ", …" if len(shown) > MOST_SAID else ""
    return (
        f"Given from these probabilities on: {listed}{more}. They were chosen on the validation rows, whose"
        " score is a little too good for it: bermo evaluate says more, on other rows."
    )


@contextmanager
def shifted(model: nn.Module, shift_C: np.ndarray | None) -> Iterator[None]:
    """Let a model answer with the shift for a while; afterwards its head's bias is the same to the bit."""
    if shift_C is None:
        yield
        return
    bias_C = cast(nn.Parameter, cast(Any, model).head.out.bias)
    before_C = bias_C.detach().clone()
    with torch.no_grad():
        bias_C.add_(torch.from_numpy(shift_C).to(bias_C))
    try:
        yield
    finally:
        with torch.no_grad():
            bias_C.copy_(before_C)


def _best_of_label(logits_N: np.ndarray, gold_N: np.ndarray) -> float:
    """Return the logit over which a label is given where its F1 is highest; nearest to 0 of equal ones."""
    if min(gold_N.sum(), (~gold_N).sum()) < FEWEST:
        return 0.0
    tried = _middles(logits_N)
    order = np.argsort(-logits_N, kind="stable")
    right = np.concatenate([[0], np.cumsum(gold_N[order])])
    given = len(logits_N) - np.searchsorted(np.sort(logits_N), tried, side="right")
    f1 = 2 * right[given] / (given + gold_N.sum())
    return _nearest_best(tried, f1)


def _best_of_two(features: Features, logits_NC: np.ndarray) -> float:
    """Return how far the second class must lie over the first to be given."""
    margins_N = logits_NC[:, 1] - logits_NC[:, 0]
    tried = _middles(margins_N)
    if len(tried) > MOST_TRIED:
        tried = np.append(np.quantile(tried, np.linspace(0, 1, MOST_TRIED)), 0.0)
    values = [
        score(features, list(logits_NC - np.array([0.0, threshold]))).score for threshold in tried.tolist()
    ]
    return _nearest_best(tried, np.array(values))


def _middles(values_N: np.ndarray) -> np.ndarray:
    """Return the middles between neighbouring values, and 0."""
    known = np.unique(values_N)
    return np.append((known[1:] + known[:-1]) / 2, 0.0)


def _nearest_best(tried: np.ndarray, values: np.ndarray) -> float:
    best = tried[values >= values.max() - 1e-12]
    return float(best[np.argmin(np.abs(best))])
