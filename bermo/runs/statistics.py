"""The numbers over seeds: mean, deviation and the 95 % interval of Student's t."""

import math

from bermo.runs.results import RunResult, SeedResult


def summarise(seeds: list[SeedResult]) -> RunResult:
    """Put the seeds together; Student's t gives the interval, from two survivors on."""
    scores = [item.score for item in seeds if item.diverged is None]
    mean = math.fsum(scores) / len(scores) if scores else math.nan
    deviation, interval = math.nan, None
    if len(scores) > 1:
        deviation = math.sqrt(math.fsum((s - mean) ** 2 for s in scores) / (len(scores) - 1))
        half = student_t(len(scores) - 1) * deviation / math.sqrt(len(scores))
        interval = (mean - half, mean + half)
    return RunResult(
        metric=seeds[0].metric,
        mean=mean,
        deviation=deviation,
        interval=interval,
        num_diverged=len(seeds) - len(scores),
        seeds=seeds,
    )


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
