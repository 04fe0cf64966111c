"""Where a model of classes errs, and how far its probabilities can be believed.

    calibration   answers in ten bins by their probability: the mean probability of a bin beside its share of
                  right answers; expected error = Σ (rows of the bin / rows) · |probability − share right|
                  (Guo et al. 2017)
    mistakes      the wrong answers of which the model was surest
    change        rows that another model had right and this one has wrong, and the other way round

The expected error is over 0 even for a model whose probabilities are right, since a bin's share is one of few
rows: what such a model would have on as many rows is beside it, from answers drawn by the probabilities.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bermo.data.features import Features
from bermo.data.intervals import Interval, bootstrap, sign_test, wilson
from bermo.data.rows import Rows, TextRows

BINS = 10
DRAWS = 200
MOST_LISTED = 50
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Bin:
    """Answers with a probability in one tenth: how many, their mean probability, and the share that is
    right with its 95 % interval, all in percent.
    """

    num_rows: int
    probability: float
    right: float
    interval: Interval


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """How far probabilities are from shares of right answers, in percent."""

    error: float
    interval: Interval
    by_chance: float
    """The error of right probabilities on as many rows: 95 in 100 times it is at most that."""
    bins: tuple[Bin, ...]


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """A wrong answer; `row` counts from 1 over the rows that have a text."""

    row: int
    text: tuple[str, ...]
    label: str
    given: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class Change:
    """What differs from another model's answers; `p` is that of as many changes either way by chance."""

    against: str
    score: float
    """The other model's share of right answers, in percent."""
    num_lost: int
    num_won: int
    p: float
    lost: tuple[Mistake, ...]
    """Rows that the other had right, those first of which this model is surest."""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The likeliest class of each row, its probability, and the class of the file."""

    given_N: Numbers
    probability_N: Floats
    gold_N: Numbers

    @property
    def right_N(self) -> Flags:
        """Which rows are right."""
        return self.given_N == self.gold_N


def answers_of(features: Features, predictions: Sequence[npt.NDArray[np.floating]]) -> Answers:
    """Return the answers to rows of classes."""
    logits_NC = np.stack(predictions).astype(np.float64)
    powers_NC = np.exp(logits_NC - logits_NC.max(axis=1, keepdims=True))
    probabilities_NC = powers_NC / powers_NC.sum(axis=1, keepdims=True)
    return Answers(
        given_N=probabilities_NC.argmax(axis=1),
        probability_N=probabilities_NC.max(axis=1),
        gold_N=np.asarray(features.targets, dtype=np.int64),
    )


def calibrate(answers: Answers) -> Calibration:
    """Compare the probabilities of answers with how many of them are right."""
    p_N, right_N = answers.probability_N, answers.right_N
    generator = np.random.default_rng(0)
    drawn = (generator.random(len(p_N)) < p_N for _ in range(DRAWS))
    low, high = bootstrap(lambda rows: expected_error(p_N[rows], right_N[rows]), len(p_N))
    by_chance = np.quantile([expected_error(p_N, is_right_N) for is_right_N in drawn], 0.95)
    return Calibration(
        error=100 * expected_error(p_N, right_N),
        interval=(100 * low, 100 * high),
        by_chance=100 * float(by_chance),
        bins=tuple(_bins(p_N, right_N)),
    )


def expected_error(probability_N: Floats, right_N: Flags) -> float:
    """Return Σ over bins of |sum of probabilities − number right|, a row."""
    gaps_B = np.bincount(_bin_of(probability_N), probability_N - right_N, minlength=BINS)
    return float(np.abs(gaps_B).sum() / len(right_N))


def _bin_of(probability_N: Floats) -> Numbers:
    return np.minimum((probability_N * BINS).astype(np.int64), BINS - 1)


def _bins(probability_N: Floats, right_N: Flags) -> list[Bin]:
    found = []
    for index in np.unique(_bin_of(probability_N)):
        is_in = _bin_of(probability_N) == index
        low, high = wilson(int(right_N[is_in].sum()), int(is_in.sum()))
        found.append(
            Bin(
                num_rows=int(is_in.sum()),
                probability=100 * float(probability_N[is_in].mean()),
                right=100 * float(right_N[is_in].mean()),
                interval=(100 * low, 100 * high),
            )
        )
    return found


def surest_mistakes(features: Features, answers: Answers, among: Flags | None = None) -> tuple[Mistake, ...]:
    """Return the wrong answers, those first of which the model is surest; with `among`, of these rows."""
    wrong_N = ~answers.right_N if among is None else ~answers.right_N & among
    rows = np.flatnonzero(wrong_N)
    order = rows[np.argsort(-answers.probability_N[rows], kind="stable")][:MOST_LISTED]
    return tuple(
        Mistake(
            row=int(row) + 1,
            text=_text(features.rows, int(row)),
            label=features.labels[answers.gold_N[row]],
            given=features.labels[answers.given_N[row]],
            probability=float(answers.probability_N[row]),
        )
        for row in order
    )


def changes(features: Features, answers: Answers, before: Answers, against: str) -> Change:
    """Compare the answers with those that another model gave to the same rows."""
    was_N, is_N = before.right_N, answers.right_N
    return Change(
        against=against,
        score=100 * float(was_N.mean()),
        num_lost=int((was_N & ~is_N).sum()),
        num_won=int((~was_N & is_N).sum()),
        p=sign_test(was_N.tolist(), is_N.tolist()),
        lost=surest_mistakes(features, answers, among=was_N),
    )


def _text(rows: Rows, row: int) -> tuple[str, ...]:
    assert isinstance(rows, TextRows)
    return (rows.first[row],) if rows.second is None else (rows.first[row], rows.second[row])
