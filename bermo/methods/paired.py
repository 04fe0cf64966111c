"""Is one arm better than the other? A paired test over seeds, and the verdict on the paper's probing claim.

    d_s = score of the mix − score of the plain encoder, at seed s
    interval: mean ± t · sd / √n (Student)      p: the share of the 2ⁿ sign flips whose |mean| is at least as large (exact)

Scores are those of the last step on rows that were never looked at, so no choice of an epoch enters. With five seeds the least
possible p is 2/32; the interval says more.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from bermo.data.sentences import TASKS
from bermo.errors import BermoError
from bermo.runs import RunResult, student_t

MOST_FLIPPED = 16
"""Pairs up to which all sign flips are counted."""
CLAIM = 2.67
"""Points that BERMo gained on the semantic tasks, on average (Table 1)."""


@dataclass(frozen=True, kw_only=True)
class Paired:
    """The mean difference over seeds, its 95 % interval, and the exact sign-flip p."""

    count: int
    mean: float
    interval: tuple[float, float] | None
    p: float


@dataclass(frozen=True, kw_only=True)
class TaskPair:
    """One task fine-tuned both ways."""

    task: str
    group: str
    plain: float
    mix: float
    difference: Paired
    num_diverged: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All tasks, the mean over the semantic ones, and what is to be thought of it."""

    tasks: tuple[TaskPair, ...]
    semantic: Paired | None
    verdict: str


def paired(differences: Sequence[float]) -> Paired:
    """Test whether the differences of pairs are zero on average."""
    count = len(differences)
    if not 1 <= count <= MOST_FLIPPED:
        raise BermoError(f"A paired test takes 1 to {MOST_FLIPPED} pairs, but got {count}.")
    mean = math.fsum(differences) / count
    interval = None
    if count > 1:
        deviation = math.sqrt(math.fsum((d - mean) ** 2 for d in differences) / (count - 1))
        half = student_t(count - 1) * deviation / math.sqrt(count)
        interval = (mean - half, mean + half)
    # A flip and its mirror image are as large as each other; rounding must not part them.
    least = abs(mean) * count - 1e-9
    flips = product((1, -1), repeat=count)
    sums = (math.fsum(s * d for s, d in zip(signs, differences, strict=True)) for signs in flips)
    return Paired(
        count=count, mean=mean, interval=interval, p=sum(abs(x) >= least for x in sums) / 2**count
    )


def compare(results: Mapping[str, RunResult]) -> Comparison:
    """Put the arms TASK-plain and TASK-mix side by side, seed by seed; a seed that diverged in either is left out."""
    pairs, by_task = [], {}
    for task, made in TASKS.items():
        if f"{task}-plain" not in results or f"{task}-mix" not in results:
            continue
        arms = [results[f"{task}-{arm}"] for arm in ("plain", "mix")]
        scores = [{s.seed: s.last_score for s in arm.seeds if s.diverged is None} for arm in arms]
        seeds = sorted(scores[0].keys() & scores[1].keys())
        if not seeds:
            continue
        by_task[task] = {seed: scores[1][seed] - scores[0][seed] for seed in seeds}
        plain, mix = (math.fsum(found[s] for s in seeds) / len(seeds) for found in scores)
        pairs.append(
            TaskPair(
                task=task, group=made.group, plain=plain, mix=mix,
                difference=paired(list(by_task[task].values())),
                num_diverged=(arms[0].num_diverged, arms[1].num_diverged),
            )
        )  # fmt: skip
    semantic = _mean_over_tasks([by_task[p.task] for p in pairs if p.group == "semantic"])
    count = sum(pair.group == "semantic" for pair in pairs)
    return Comparison(tasks=tuple(pairs), semantic=semantic, verdict=_verdict(semantic, count))


def _mean_over_tasks(differences: Sequence[Mapping[int, float]]) -> Paired | None:
    """Average each seed over the tasks, then test over the seeds that all tasks have."""
    if not differences:
        return None
    seeds = set.intersection(*(set(found) for found in differences))
    means = [math.fsum(d[seed] for d in differences) / len(differences) for seed in sorted(seeds)]
    return paired(means) if means else None


def _verdict(semantic: Paired | None, count: int) -> str:
    if semantic is None:
        return "No semantic task has both arms, so nothing can be said of the paper's claim."
    said = f"Over {count} semantic task(s) and {semantic.count} seed(s) the mix gains {semantic.mean:+.2f} points"
    if semantic.interval is None:
        return f"{said}. One seed has no interval: run more."
    low, high = semantic.interval
    said += f" (95 % interval {low:+.2f} … {high:+.2f}, sign-flip p = {semantic.p:.3f})"
    if low > 0:
        found = "the mix is better"
    elif high < 0:
        found = "the plain encoder is better"
    else:
        found = "no difference is shown"
    place = "lies inside" if low <= CLAIM <= high else "lies outside"
    return f"{said}: {found}. The paper's +{CLAIM} {place} this interval."
