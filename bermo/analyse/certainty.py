"""Whether a change of a model's answers is more than chance: exact, and corrected for many tries.

    Holm        the k-th smallest p of n tries, times n − k + 1, never below the one before (Holm 1979)

With n tries a change is seen only where at least `least_seen(n)` rows change, all in one direction.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bermo.data.intervals import LEVEL, Interval, wilson


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


def holm(values: Sequence[float]) -> list[float]:
    """Return the p of many tries, corrected so that all of them together err with 5 % at most."""
    order = sorted(range(len(values)), key=lambda at: values[at])
    corrected, highest = [0.0] * len(values), 0.0
    for rank, at in enumerate(order):
        highest = max(highest, min(1.0, values[at] * (len(values) - rank)))
        corrected[at] = highest
    return corrected


def least_seen(tries: int) -> int:
    """Return how many rows must change, all one way, to be seen among so many tries."""
    return math.floor(math.log2(2 * tries / LEVEL)) + 1
