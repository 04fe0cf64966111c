"""What all tables share: reading a result, writing rows with pipes, means with intervals."""

import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from bermo.methods.probing.paired import Paired, paired
from bermo.runs.results import ONE_ANSWER
from bermo.runs.statistics import within

RESULTS = Path(__file__).parents[2] / "results"
PRUNING = "gpu.json"


@cache
def read(name: str) -> Any:
    """Return what a file in results/ holds."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table."""
    lines = [list(head), ["---"] * len(head), *map(list, rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def signed(number: float) -> str:
    """Write a difference with its sign, as text does."""
    return f"{number:+.2f}".replace("-", "−")


def spread(values: Sequence[float]) -> Paired:
    """Return mean and 95 % interval (Student) of one number a seed."""
    return paired(list(values))


def with_interval(values: Sequence[float], metric: str = "") -> str:
    """Write a mean and its 95 % interval, which ends where a metric of that name does."""
    known = spread(values)
    interval = within(known.interval, metric)
    if interval is None:
        return f"{known.mean:.2f}"
    low, high = interval
    return f"{known.mean:.2f} ({low:.2f} … {high:.2f})"


def gap(known: Paired) -> str:
    """Write a difference and its 95 % interval."""
    if known.interval is None:
        return signed(known.mean)
    low, high = known.interval
    return f"{signed(known.mean)} ({signed(low)} … {signed(high)})"


def last_scores(arm: str, *, seeds: int | None = None) -> dict[int, float]:
    """Return the last score of each seed of a pruning arm that is not dead, the first `seeds` of them."""
    rows = read(PRUNING)[arm]["seeds"][:seeds]
    dead = [row["seed"] for row in rows if (row["diverged"] or "").startswith(ONE_ANSWER)]
    return {row["seed"]: row["last_score"] for row in rows if row["seed"] not in dead}


def num_seeds(arm: str) -> int:
    """Return how many seeds a pruning arm has."""
    return len(read(PRUNING)[arm]["seeds"])


def difference(mix: str, plain: str) -> Paired:
    """Return mix − plain, paired by the seeds that survive in both pruning arms."""
    one, other = last_scores(mix), last_scores(plain)
    return spread([one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())])
