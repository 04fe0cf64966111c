"""The numbers over seeds: mean, deviation and the 95 % interval of Student's t.

t knows nothing of a score's ends: of two seeds (t = 12.7) it may reach beyond 100 %. Since no mean of scores
can, the interval of a score is cut there, which takes no true value out of it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from bermo.data.tasks import built_in
from bermo.runs.results import RunResult, SeedResult, read_seed

CORRELATIONS = ("matthews", "pearson", "spearman", "mean")
"""Metrics that may be below 0: a mean may be one of correlations."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """One number a seed, put together: NaN and None where there are too few."""

    mean: float
    deviation: float
    interval: tuple[float, float] | None


def summarise(seeds: list[SeedResult]) -> RunResult:
    """Put the best evaluations of the seeds that did not diverge together."""
    survivors = [item.score for item in seeds if item.diverged is None]
    best = spread(survivors)
    return RunResult(
        metric=seeds[0].metric,
        mean=best.mean,
        deviation=best.deviation,
        interval=within(best.interval, seeds[0].metric),
        num_diverged=len(seeds) - len(survivors),
        seeds=seeds,
    )


def last_scores(result: RunResult) -> Spread:
    """Put the last evaluations together, which nobody chose by the rows that score them."""
    known = spread([item.last_score for item in result.seeds if item.diverged is None])
    return replace(known, interval=within(known.interval, result.metric))


def within(interval: tuple[float, float] | None, metric: str) -> tuple[float, float] | None:
    """Cut an interval at the ends that a metric has; the number of a user's function may be any."""
    if interval is None or not built_in(metric):
        return interval
    least = -100.0 if metric in CORRELATIONS else 0.0
    return max(interval[0], least), min(interval[1], 100.0)


def spread(scores: Sequence[float]) -> Spread:
    """Return mean, deviation and interval; Student's t gives the interval, from two numbers on."""
    mean = math.fsum(scores) / len(scores) if scores else math.nan
    if len(scores) < 2:
        return Spread(mean=mean, deviation=math.nan, interval=None)
    deviation = math.sqrt(math.fsum((s - mean) ** 2 for s in scores) / (len(scores) - 1))
    half = student_t(len(scores) - 1) * deviation / math.sqrt(len(scores))
    return Spread(mean=mean, deviation=deviation, interval=(mean - half, mean + half))


@cache
def student_t(freedom: int) -> float:
    """The 97.5 % quantile of Student's t: exact for 1 and 2, then Cornish-Fisher's expansion refined."""
    if freedom == 1:
        return 12.706204736
    if freedom == 2:
        return 4.302652730
    low, high = 1.9, 5.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_tail(middle, freedom) > 0.025 else (low, middle)
    return (low + high) / 2


def _t_tail(value: float, freedom: int) -> float:
    """The chance that Student's t exceeds `value`, by the finite sums for whole degrees of freedom."""
    theta = math.atan(value / math.sqrt(freedom))
    cosine = math.cos(theta) ** 2
    term, total = 1.0, 0.0
    if freedom % 2:
        for k in range(1, (freedom - 1) // 2 + 1):
            total += term
            term *= cosine * (2 * k) / (2 * k + 1)
        inside = 2 / math.pi * (theta + math.sin(theta) * math.cos(theta) * total)
    else:
        for k in range(1, freedom // 2 + 1):
            total += term
            term *= cosine * (2 * k - 1) / (2 * k)
        inside = math.sin(theta) * total
    return (1 - inside) / 2


def read_run(folder: Path, seeds: Sequence[int]) -> RunResult:
    """Read the results of a run's seeds, all of which have ended."""
    found = [read_seed(folder / f"seed-{seed}") for seed in seeds]
    return summarise([result for result in found if result is not None])
