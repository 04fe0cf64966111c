"""Signed or unsigned int8 weights: both are written, compared with the model and timed on this machine.

The more faithful sign is kept, unless the other is faster by `MUCH_FASTER` and its error not `MUCH_WORSE`
times as large; one that loses more of the score than is allowed is kept only where both do. On x86 with VNNI
unsigned weights can take three times as long as signed ones.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bermo.ship.runtimes.candidate import Candidate
from bermo.ship.runtimes.forms import Sign

MUCH_FASTER = 1.15
"""Times that differ by less are the noise of a short measurement."""
MUCH_WORSE = 2.0
SECONDS = 2.0
FEWEST_ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class TriedSign:
    """A graph with weights of one sign: its error beside the model, and its time for one batch on this
    machine.
    """

    sign: Sign
    graph: Path
    relative_error: float
    seconds: float | None = None
    """None where there was nothing to compare the time with."""
    is_accepted: bool = True
    """Whether an export of it is not refused."""


def choose_sign(tried: Sequence[TriedSign], tolerance: float) -> TriedSign:
    """Return the graph to keep: the most faithful one, or one that is much faster and not much worse."""
    tried = [item for item in tried if item.is_accepted] or tried
    faithful = min(tried, key=lambda item: item.relative_error)
    best = faithful
    for item in tried:
        if item.seconds is None or faithful.seconds is None or best.seconds is None:
            continue
        is_sound = item.relative_error <= min(tolerance, MUCH_WORSE * faithful.relative_error)
        if is_sound and item.seconds * MUCH_FASTER < faithful.seconds and item.seconds < best.seconds:
            best = item
    return best


def seconds_of(
    candidates: Sequence[Candidate],
    batch: Mapping[str, np.ndarray],
    budget: float = SECONDS,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Return the shortest time of each candidate for a batch, measured by turns until the budget is spent."""
    for candidate in candidates:
        candidate(batch)
    shortest = [float("inf")] * len(candidates)
    start, rounds = clock(), 0
    while rounds < FEWEST_ROUNDS or clock() - start < budget:
        for index, candidate in enumerate(candidates):
            begin = clock()
            candidate(batch)
            shortest[index] = min(shortest[index], clock() - begin)
        rounds += 1
    return shortest
