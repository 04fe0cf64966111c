"""The rows of an atlas: one method over all its seeds, beside the dense model. No torch is imported."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bermo.atlas.steps import Published
from bermo.files import write_json
from bermo.runs.statistics import spread, within

BASELINE_GROUP = "baselines"
"""The group of rows that are no encoder."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """What a method gives; NaN where it was not timed. Scores and shares are in percent."""

    name: str
    group: str
    summary: str
    seeds: tuple[int, ...]
    scores: tuple[float, ...]
    kepts: tuple[float, ...]
    """Of each seed: its score as a share of its teacher's."""
    same_labels: float
    same_probabilities: float
    megabytes: float
    parameters: int
    nonzero: int
    seconds: float
    """Of training, the mean over the seeds."""
    folder: str
    """What is shipped, of the seed with the best score."""
    diverged: int = 0
    """Seeds whose training diverged; they count."""
    milliseconds: float = math.nan
    rows_per_second: float = math.nan
    latency_gain: float = math.nan
    speedup: float = math.nan
    speedup_spread: tuple[float, float] = (math.nan, math.nan)
    size_gain: float = math.nan
    gpu_speedup: float = math.nan
    """On a GPU, if there is one, torch in fp16: times the throughput of dense, and times as short a call."""
    gpu_latency_gain: float = math.nan
    commands: tuple[str, ...] = ()
    published: tuple[Published, ...] = ()

    @property
    def mean(self) -> float:
        """The mean score over seeds."""
        return spread(self.scores).mean

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the mean, from two seeds on, as Student's t gives it; `within` cuts it."""
        return spread(self.scores).interval

    @property
    def kept(self) -> float:
        """The mean share of its teacher's score."""
        return spread(self.kepts).mean

    @property
    def is_timed(self) -> bool:
        return not math.isnan(self.speedup)


@dataclass(frozen=True, kw_only=True)
class Atlas:
    """All rows, where they were timed, and what is not among them."""

    title: str
    metric: str
    num_rows: int
    """Of the validation set."""
    machine: str
    gpu: str | None
    caption: str
    rows: tuple[Row, ...]
    failed: Mapping[str, str] = field(default_factory=dict)
    """Methods that failed, wholly or for a seed, and why."""
    left_out: tuple[str, ...] = ()
    """Methods that the budget had no time for."""
    noisy: tuple[str, ...] = ()
    """Methods that were timed while the machine was not quiet."""
    picked: str | None = None
    """What was picked, in a sentence."""
    unlabelled: str | None = None
    """Which texts without labels were learned from, and by whom."""


def front(rows: Sequence[Row], gains: Sequence[float]) -> tuple[int, ...]:
    """Return the rows that no other beats in both the share kept and a gain, the largest gain first."""
    order = sorted(range(len(rows)), key=lambda index: (-gains[index], -rows[index].kept))
    kept, best = list[int](), -math.inf
    for index in order:
        if rows[index].kept > best and not math.isnan(gains[index]):
            kept.append(index)
            best = rows[index].kept
    return tuple(kept)


def write_atlas(path: Path, atlas: Atlas) -> None:
    """Write everything that is known as JSON."""
    values: dict[str, Any] = asdict(atlas)
    for row, known in zip(values["rows"], atlas.rows, strict=True):
        row |= {"mean": known.mean, "interval": within(known.interval, atlas.metric), "kept": known.kept}
    write_json(path, values)
