"""Is one arm better than the other? A paired test over seeds, and the verdict on the paper's probing claim.

    d_s = score of the mix − score of the plain encoder, at seed s
    interval: mean ± t · sd / √n (Student)
    p: the share of the 2ⁿ sign flips whose |mean| is at least as large; beyond 16 pairs of random flips

Scores are those of the last step on rows that were never used before, so no choice of an epoch enters. With
five seeds the least possible p is 2/32; the interval says more. A task whose labels are not believed has its
row, but no mean counts it, and the paper's gain is then its mean over the same tasks.
"""

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bermo.data.sentences import TASKS
from bermo.errors import BermoError
from bermo.printing import number_of
from bermo.recipes.probing import PAPER
from bermo.runs.results import RunResult
from bermo.runs.statistics import student_t

SEMANTIC = tuple(task for task, made in TASKS.items() if made.group == "semantic")
MOST_FLIPPED = 16
"""Pairs up to which all sign flips are counted; of more, as many random ones as 16 pairs have."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """What the rows of a task tell before any training."""

    largest_class: float
    """What always giving the most frequent answer scores on test, in percent."""
    doubt: str = ""
    """Why the labels are not to be believed, if they are not."""


@dataclass(frozen=True, kw_only=True)
class Paired:
    """The mean difference over seeds, its 95 % interval, and the p of the sign flips."""

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
    known: Known | None = None


@dataclass(frozen=True, kw_only=True)
class GroupPair:
    """The mean over the tasks of a group that count."""

    tasks: tuple[str, ...]
    plain: float
    mix: float
    difference: Paired


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All tasks, the means over their groups, and what is to be thought of the semantic one."""

    tasks: tuple[TaskPair, ...]
    groups: Mapping[str, GroupPair]
    claim: float
    """Return the paper's mean gain of the mix on these tasks (Table 12): 2.67 on the five semantic ones."""
    left_out: tuple[str, ...]
    """Tasks that no mean counts, each with the reason."""
    verdict: str


def paired(differences: Sequence[float]) -> Paired:
    """Test whether the differences of pairs are zero on average."""
    count = len(differences)
    if not count:
        raise BermoError("A paired test needs at least one pair.")
    mean = math.fsum(differences) / count
    interval = None
    if count > 1:
        deviation = math.sqrt(math.fsum((d - mean) ** 2 for d in differences) / (count - 1))
        half = student_t(count - 1) * deviation / math.sqrt(count)
        interval = (mean - half, mean + half)
    return Paired(count=count, mean=mean, interval=interval, p=_sign_flip_p(np.asarray(differences, float)))


def _sign_flip_p(differences: npt.NDArray[np.float64]) -> float:
    """Return the share of sign flips whose sum is at least as large as the sum as it is."""
    count = len(differences)
    # A flip and its mirror image are as large as each other; rounding must not part them.
    least = abs(differences.sum()) - 1e-9
    if count <= MOST_FLIPPED:
        numbers = np.arange(2**count)[:, None]
        signs = 1 - 2 * (numbers >> np.arange(count) & 1)
        return float(np.mean(np.abs(signs @ differences) >= least))
    signs = np.random.default_rng(0).choice((-1, 1), size=(2**MOST_FLIPPED, count))
    # The flip that changes nothing is one of them, so that p is never 0.
    return float((1 + np.sum(np.abs(signs @ differences) >= least)) / (1 + len(signs)))


def compare(results: Mapping[str, RunResult], known: Mapping[str, Known] | None = None) -> Comparison:
    """Compare the arms TASK-plain and TASK-mix seed by seed; a seed that diverged in either is left out."""
    known = known or {}
    pairs, left_out = [], []
    for task, made in TASKS.items():
        if f"{task}-plain" not in results or f"{task}-mix" not in results:
            continue
        arms = [results[f"{task}-{arm}"] for arm in ("plain", "mix")]
        scores = [_scores(arm) for arm in arms]
        seeds = sorted(scores[0].keys() & scores[1].keys())
        doubt = known[task].doubt if task in known else ""
        if doubt or not seeds:
            left_out.append(f"{task}: {doubt or 'no seed learned it in both arms'}")
        if not seeds:
            continue
        plain, mix = (math.fsum(of_arm[s] for s in seeds) / len(seeds) for of_arm in scores)
        pairs.append(
            TaskPair(
                task=task,
                group=made.group,
                plain=plain,
                mix=mix,
                difference=paired([scores[1][seed] - scores[0][seed] for seed in seeds]),
                num_diverged=(arms[0].num_diverged, arms[1].num_diverged),
                known=known.get(task),
            )
        )
    counted = [pair for pair in pairs if not (pair.known and pair.known.doubt)]
    groups = _groups(results, counted)
    semantic = groups.get("semantic")
    claim = claimed(semantic.tasks if semantic else SEMANTIC)
    return Comparison(
        tasks=tuple(pairs),
        groups=groups,
        claim=claim,
        left_out=tuple(left_out),
        verdict=" ".join([_verdict(semantic, claim), *_said(left_out)]),
    )


def mean_gains(results: Mapping[str, RunResult], tasks: Sequence[str]) -> dict[int, float]:
    """Return each seed's difference, mix less plain, averaged over the tasks; seeds that all arms have."""
    plain, mix = ([_scores(results[f"{task}-{arm}"]) for task in tasks] for arm in ("plain", "mix"))
    seeds = set.intersection(*(set(scores) for scores in (*plain, *mix)))
    pairs = list(zip(plain, mix, strict=True))
    return {s: math.fsum(b[s] - a[s] for a, b in pairs) / len(tasks) for s in sorted(seeds)}


def claimed(tasks: Sequence[str]) -> float:
    """Points that the paper's mix gained on these tasks, on average (Table 12): 2.67 on the five semantic
    ones.
    """
    return math.fsum(PAPER[task][1] - PAPER[task][0] for task in tasks) / len(tasks)


def _said(left_out: Sequence[str]) -> list[str]:
    return [f"Not counted: {'; '.join(left_out)}."] if left_out else []


def _scores(result: RunResult) -> dict[int, float]:
    return {seed.seed: seed.last_score for seed in result.seeds if seed.diverged is None}


def _groups(results: Mapping[str, RunResult], pairs: Sequence[TaskPair]) -> dict[str, GroupPair]:
    """Average each seed over a group's tasks, then test over the seeds that all its tasks have."""
    groups = {}
    for group in dict.fromkeys(pair.group for pair in pairs):
        tasks = [pair.task for pair in pairs if pair.group == group]
        gains = mean_gains(results, tasks)

        def mean(arm: str, tasks: Sequence[str] = tasks, seeds: Collection[int] = gains) -> float:
            of_tasks = [_scores(results[f"{task}-{arm}"]) for task in tasks]
            return statistics.fmean(scores[seed] for scores in of_tasks for seed in seeds)

        if gains:
            groups[group] = GroupPair(
                tasks=tuple(tasks),
                plain=mean("plain"),
                mix=mean("mix"),
                difference=paired(list(gains.values())),
            )
    return groups


def _verdict(semantic: GroupPair | None, claim: float) -> str:
    if semantic is None:
        return "No semantic task has both arms, so nothing can be said of the paper's claim."
    gain = semantic.difference
    sentence = (
        f"Over {number_of(len(semantic.tasks), 'semantic task')} and {number_of(gain.count, 'seed')}"
        f" the mix gains {gain.mean:+.2f} points"
    )
    if gain.interval is None:
        return f"{sentence}. One seed has no interval: run more."
    low, high = gain.interval
    sentence += f" (95 % interval {low:+.2f} … {high:+.2f}, sign-flip p = {gain.p:.3f})"
    if low > 0:
        verdict = "the mix is better"
    elif high < 0:
        verdict = "the plain encoder is better"
    else:
        verdict = "no difference is shown"
    where = "lies inside" if low <= claim <= high else "lies outside"
    return f"{sentence}: {verdict}. The paper's {claim:+.2f} on the same tasks {where} this interval."
