"""Whether what is said of a model is more than chance: intervals over texts, and exact tests of many tries.

    over texts  Σ a_t / Σ b_t over the texts t, ± Student's t · deviation of (a_t − ratio · b_t) / mean b
    of a share  Wilson's interval with as many rows as the spread over texts is worth: tokens of one text are
                alike, so that n tokens say less than n texts, and never less than one token a text
    left out    the spread of a number over what it is without each group of texts (jackknife, Tukey 1958)
    the least   size of a model that is good enough: the middle 95 % of it over resamples of the rows
    Holm        the k-th smallest p of n tries, times n − k + 1, never below the one before (Holm 1979)

With n tries a change is seen only where at least `least_seen(n)` rows change, all in one direction.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bermo.data.intervals import LEVEL, RESAMPLES, Interval, wilson
from bermo.printing import percent
from bermo.runs.statistics import student_t

FEWEST_TEXTS = 4
"""Of fewer texts no interval is given."""
FEWEST_ROWS = 20
"""Of fewer rows no size of a model is given an interval: one row is more than five points."""
Ends = Interval | None
"""A 95 % interval; None where the texts are too few for one."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A score in percent, and which rows were right; None for tasks whose rows are not right or wrong."""

    score: float
    right: tuple[bool, ...] | None
    is_one_answer: bool = False

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of the share of right rows, in percent."""
        if not self.right:
            return None
        low, high = wilson(sum(self.right), len(self.right))
        return 100 * low, 100 * high


def ends_of_mean(parts: Sequence[float], sizes: Sequence[float] | None = None) -> Ends:
    """Return the interval of Σ parts / Σ sizes over texts; without sizes, of the mean."""
    count = len(parts)
    sizes = sizes or [1.0] * count
    if count < FEWEST_TEXTS or not math.fsum(sizes):
        return None
    ratio = math.fsum(parts) / math.fsum(sizes)
    half = student_t(count - 1) * _deviation(parts, sizes)
    return ratio - half, ratio + half


def ends_of_share(hits: Sequence[float], counts: Sequence[float]) -> Ends:
    """Return the interval of a share of tokens, from the hits and the tokens of each text."""
    total = math.fsum(counts)
    if len(hits) < FEWEST_TEXTS or not total:
        return None
    share, deviation = math.fsum(hits) / total, _deviation(hits, counts)
    worth = share * (1 - share) / deviation**2 if deviation else 0.0
    rows = min(total, max(worth, len(hits)))
    return wilson(share * rows, rows)


def _deviation(parts: Sequence[float], sizes: Sequence[float]) -> float:
    """Return the standard error of Σ parts / Σ sizes."""
    count, total = len(parts), math.fsum(sizes)
    ratio = math.fsum(parts) / total
    gaps = ((part - ratio * size) ** 2 for part, size in zip(parts, sizes, strict=True))
    return math.sqrt(math.fsum(gaps) * count / (count - 1)) / total


def ends_left_out(value: float, without: Sequence[float]) -> Ends:
    """Return the interval of a number from what it is without each of several groups of texts."""
    count = len(without)
    if count < FEWEST_TEXTS:
        return None
    mean = math.fsum(without) / count
    spread = math.sqrt(math.fsum((item - mean) ** 2 for item in without) * (count - 1) / count)
    half = student_t(count - 1) * spread
    return value - half, value + half


def least_within(sizes: Sequence[float], scores: Sequence[float], points: float) -> float:
    """Return the least size whose score is at most so many points below that of the largest size."""
    lowest = scores[sizes.index(max(sizes))] - points
    # None where the score is not a number.
    return min(
        (size for size, score in zip(sizes, scores, strict=True) if score >= lowest), default=max(sizes)
    )


def ends_of_least(sizes: Sequence[float], judged: Sequence[Judged], points: float) -> Ends:
    """Return the interval of `least_within` by the share of right rows, over resamples of the rows.

    Rows that are right at the same sizes are alike, so that only how many of each kind is drawn.
    """
    right = [item.right for item in judged if item.right is not None]
    if len(right) < len(sizes) or len(right[0]) < FEWEST_ROWS:
        return None
    kinds_KS, counts_K = np.unique(np.array(right).T, axis=0, return_counts=True)
    rows = len(right[0])
    drawn_RK = np.random.default_rng(0).multinomial(rows, counts_K / rows, size=RESAMPLES)
    right_RS = drawn_RK @ kinds_KS.astype(np.int64)
    whole_R1 = right_RS[:, [sizes.index(max(sizes))]]
    is_within_RS = 100 * (whole_R1 - right_RS) <= points * rows
    least_R = np.where(is_within_RS, np.array(sizes), np.inf).min(1)
    low, high = np.quantile(least_R, [0.025, 0.975], method="inverted_cdf")
    return float(low), float(high)


def written(value: float, form: str) -> str:
    """Write a number in a format: ".3f" as it is, ".1%" as a percent."""
    return percent(value, int(form[1:-1])) if form.endswith("%") else f"{value:{form}}"


def told(value: float, ends: Ends, form: str = ".3f", what: str = "texts") -> str:
    """Write a number with its interval, or say that there are too few; `form` may be a percent's."""
    if ends is None:
        return f"{written(value, form)} (too few {what} for an interval)"
    scale, digits = (100, form.replace("%", "f")) if form.endswith("%") else (1, form)
    return f"{written(value, form)} ({scale * ends[0]:{digits}} … {scale * ends[1]:{digits}})"


def least_told(value: float, ends: Ends, form: str, metric: str, rows: int) -> str:
    """Write the least size that is good enough with its interval, or say why there is none."""
    if ends is None and rows >= FEWEST_ROWS:
        return f"{written(value, form)} (no interval: rows of {metric} are not right or wrong)"
    by = " by accuracy)" if metric != "accuracy" and ends is not None else ")"
    return told(value, ends, form, "rows").removesuffix(")") + by


def holm(values: Sequence[float]) -> list[float]:
    """Return the p of many tries, corrected so that all of them together err with 5 % at most."""
    order = sorted(range(len(values)), key=lambda at: values[at])
    corrected, highest = [0.0] * len(values), 0.0
    for rank, at in enumerate(order):
        highest = max(highest, min(1.0, values[at] * (len(values) - rank)))
        corrected[at] = highest
    return corrected


def num_sure(values: Sequence[float]) -> int:
    """Return how many of many tries are more than chance, corrected for all of them."""
    return sum(p < LEVEL for p in holm(values))


def least_seen(tries: int) -> int:
    """Return how many rows must change, all one way, to be seen among so many tries."""
    return math.floor(math.log2(2 * tries / LEVEL)) + 1
