"""Whether a training failed, how, and what may help: a collapse and too few steps ask for the opposite.

guessing       one answer for everything, a loss at chance, or numbers that do not follow the right ones
undertrained   guessing, and never better, after few steps or at a low rate
diverged       no number; or guessing although it was better, or after many steps, or when pruned
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bermo.data.scoring import TaskScores
from bermo.methods.checks import UNITS
from bermo.methods.defaults import LEAST_STEPS, PROBED_KINDS, Facts, usual_rate
from bermo.methods.prepare import Prepared
from bermo.runs.results import ONE_ANSWER
from bermo.spec import RunSpec, chosen
from bermo.training.job import Fit

CHANCE_SHARE = 0.98
"""A classifier that learned something has left this share of the entropy of the labels behind."""
GUESSING_MARGIN = 3.0
"""Points above always giving the most common answer; also points that were lost for good."""
LOW_RATE = 0.5
HIGH_RATE = 10.0
"""Shares of the usual rate: below the first a training is slow, above the second it often collapses."""
TWO_SIDED = 1.96
"""Of the normal distribution: a share of half of N rows is off by 1.96 √(0.25 / N) in 5 % of draws."""
QUANTILE = 1.645
"""Of the normal distribution: a correlation r of N rows is above 0 with 95 % where r √N is larger."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How a training ended, and why it failed if it did."""

    kind: Literal["fine", "diverged", "undertrained"]
    reason: str | None = None


def judge(prepared: Prepared, scores: TaskScores, ended: Fit) -> Verdict:
    """Judge a training by its last evaluation, its last loss and the best that it ever reached."""
    if not ended.is_finite:
        return Verdict(kind="diverged", reason="the loss became infinite or not a number")
    reason = _why_guessing(prepared, scores, ended.last_loss)
    if reason is None:
        return Verdict(kind="fine")
    # A function of the user's own has a scale of its own, on which no fall is known to be large.
    highest = ended.highest if prepared.data.task.own_metric is None else None
    if highest is not None and highest > scores.score + _fall(len(prepared.valid)):
        return Verdict(kind="diverged", reason=f"{reason}; {scores.main} was {highest:.2f} before")
    if _is_short(prepared, ended.steps):
        return Verdict(kind="undertrained", reason=f"{reason} after {ended.steps} steps")
    return Verdict(kind="diverged", reason=reason)


def one_answer(prepared: Prepared, scores: TaskScores) -> str | None:
    """Say which answer a model gives to everything, where more than one is right; else None."""
    kind = prepared.data.task.kind
    if kind == "regression":
        return None if scores.values["pearson"] else f"{ONE_ANSWER} the same number"
    if kind == "span" or len(scores.predicted) != 1:
        return None
    targets = np.asarray(prepared.valid.targets)
    if kind == "multi-label":
        is_wrong = len(np.unique(targets, axis=0)) > 1
    else:
        is_wrong = len(np.unique(targets[targets >= 0])) > 1
    return f'{ONE_ANSWER} "{next(iter(scores.predicted))}"' if is_wrong else None


def handicap(prepared: Prepared, scores: TaskScores | None) -> float:
    """Return a standard error for answers that know nothing, which may lead by a few rows; else 0."""
    # A function of the user's own has a scale of its own.
    if scores is None or prepared.data.task.own_metric is not None:
        return 0.0
    knows = scores.values.get("matthews", 1.0) > 0 and one_answer(prepared, scores) is None
    return 0.0 if knows else _standard_error(len(prepared.valid))


def advice(spec: RunSpec, facts: Facts, verdict: Literal["diverged", "undertrained"]) -> str:
    """Say what may help, without anything that the spec has already."""
    ways = _against_collapse(spec, facts) if verdict == "diverged" else _against_few_steps(spec, facts)
    return f"Try {' or '.join(filter(None, (', '.join(ways[:-1]), ways[-1])))}."


def _against_collapse(spec: RunSpec, facts: Facts) -> list[str]:
    ways = list[str]()
    rate = chosen(spec.train.lr)
    is_pruned = spec.prune.method != "none"
    if spec.prune.method == "movement" and spec.prune.rank == "score":
        ways.append("--rank sensitivity, which prunes no weight that the loss feels")
    if is_pruned and spec.model.mix.kind == "none":
        ways.append("--mix across")
    if not is_pruned or rate > HIGH_RATE * usual_rate(facts):
        ways.append(f"a smaller --lr than {rate:g}")
    if is_pruned:
        ways.append("more --epochs")
    if spec.train.clip == 0:
        ways.append("--clip 1")
    return [*ways, f"a longer --warmup than {spec.train.warmup:g}", "another seed"]


def _against_few_steps(spec: RunSpec, facts: Facts) -> list[str]:
    ways = [f"more --epochs than {chosen(spec.train.epochs):g}"]
    if spec.model.head == "random" and facts.kind in PROBED_KINDS and not spec.has_teachers_layers:
        ways.append("--head probe")
    usual = usual_rate(facts)
    if chosen(spec.train.lr) < usual:
        ways.append(f"a larger --lr ({usual:g} is usual for this encoder)")
    return ways


def _why_guessing(prepared: Prepared, scores: TaskScores, last_loss: float) -> str | None:
    """Say in which way the last answers are no better than guessing, or None."""
    if reason := one_answer(prepared, scores):
        return reason
    targets = np.asarray(prepared.valid.targets)
    kind = prepared.data.task.kind
    if kind == "regression":
        return _why_unrelated(scores.values["pearson"] / 100, len(targets))
    if kind != "classification" or not _is_plain_loss(prepared.spec):
        return None
    chance = _entropy(np.asarray(prepared.train.targets))
    most_common = 100 * float(np.unique(targets, return_counts=True)[1].max()) / len(targets)
    # Early in a training the answers can be good while the loss has hardly moved: that is no guessing.
    accuracy = scores.values["accuracy"]
    if accuracy > most_common + GUESSING_MARGIN or last_loss < CHANCE_SHARE * chance:
        return None
    if prepared.spec.train.contrast:
        return f"accuracy {accuracy:.2f} is about that of one answer for everything ({most_common:.2f})"
    return f"the training loss {last_loss:.3f} is still that of guessing ({chance:.3f})"


def _why_unrelated(correlation: float, num_rows: int) -> str | None:
    """Say that predicted numbers do not follow the right ones, or run against them; None where they do."""
    if correlation * math.sqrt(num_rows) >= QUANTILE:
        return None
    if correlation * math.sqrt(num_rows) > -QUANTILE:
        return f"the predictions do not follow the numbers (correlation {correlation:.2f})"
    return (
        f"the predictions run against the numbers (correlation {correlation:.2f}; is the scale of one file"
        " the other way round?)"
    )


def _fall(num_rows: int) -> float:
    """Return by how many points a score must fall to tell of more than the few rows that it is of."""
    return max(GUESSING_MARGIN, TWO_SIDED * _standard_error(num_rows))


def _standard_error(num_rows: int) -> float:
    """Return the standard error of a share of so many rows, in points, where it is largest."""
    return 100 * math.sqrt(0.25 / num_rows)


def _is_short(prepared: Prepared, steps: int) -> bool:
    """Tell whether a training had few steps or a low rate, and nothing that is known to make it collapse."""
    spec, usual = prepared.spec, usual_rate(prepared.facts)
    rate = chosen(spec.train.lr)
    if spec.prune.method != "none" or rate > HIGH_RATE * usual:
        return False
    return steps < LEAST_STEPS or rate < LOW_RATE * usual


def _entropy(targets: np.ndarray) -> float:
    """The loss of a classifier that knows how often each class comes, and nothing else."""
    counts = np.unique(targets, return_counts=True)[1]
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def _is_plain_loss(spec: RunSpec) -> bool:
    """Tell whether the training loss is that of the labels, without weights, a penalty or a teacher.

    A contrast of classes only adds to it: a loss that is not below chance has not been learned either way.
    """
    prune = spec.prune
    method = prune.by if prune.method in UNITS else prune.method
    is_alike = spec.train.class_weights is None
    return is_alike and spec.distill.teacher is None and method in ("none", "magnitude", "movement")
