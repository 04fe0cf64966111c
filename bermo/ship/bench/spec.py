"""What a bench measures, and how long. No torch is imported."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bermo.fields import option

BenchDevice = Literal["cpu", "cuda"]
MOST_ROWS = 10_000
"""Rows of one call: more are no call that anybody makes, and would fill the memory."""
MOST_THREADS = 1024


@dataclass(frozen=True, kw_only=True)
class BenchSpec:
    """The rows that are scored, the shapes of the calls that are timed, and how often."""

    data: Path | None = option(None, "rows with answers: score every candidate on them", metavar="FILE")
    batches: tuple[int, ...] = option((1, 32), "rows a call", "batch", least=1, most=MOST_ROWS)
    lengths: tuple[int, ...] = option((32, 128), "tokens a row", least=1)
    rounds: int = option(5, "turns each takes at each shape", least=1)

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Every batch size with every length, in increasing order."""
        return [(rows, length) for rows in sorted(set(self.batches)) for length in sorted(set(self.lengths))]
