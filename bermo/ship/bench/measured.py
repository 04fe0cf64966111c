"""What a bench measured: quantiles of calls, one row for each candidate, ratios to the first."""

from dataclasses import dataclass

from bermo.ship.bench.spec import BenchSpec

Shape = tuple[int, int]
"""Rows and tokens of a call."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Calls at one shape: quantiles in milliseconds, rows a second."""

    batch: int
    length: int
    calls: int
    p50: float
    p95: float
    p99: float
    rows_per_second: float
    rounds: tuple[float, ...]
    """The median milliseconds of each round."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One candidate."""

    name: str
    form: str
    precision: str
    device: str
    megabytes: float
    peak_memory_mb: float
    score: float | None
    timings: tuple[Timing, ...]

    def at(self, batch: int, length: int) -> Timing:
        """Return the timing at a shape."""
        return next(t for t in self.timings if (t.batch, t.length) == (batch, length))


@dataclass(frozen=True, kw_only=True)
class Bench:
    """All candidates, the first of them the baseline of every ratio."""

    spec: BenchSpec
    metric: str | None
    threads: int
    machine: str
    versions: dict[str, str]
    rows: tuple[Measured, ...]
    repeats: int = 0
    """Rounds that were measured again, since the machine was noisy."""
    num_scored: int = 0
    """Rows that the scores are of; 0 where nothing was scored, or a file does not say."""

    @property
    def latency_shape(self) -> tuple[int, int]:
        return min(self.spec.batches), min(self.spec.lengths)

    @property
    def throughput_shape(self) -> tuple[int, int]:
        return max(self.spec.batches), max(self.spec.lengths)

    def speedup(self, row: Measured) -> float:
        """Throughput over the baseline's."""
        shape = self.throughput_shape
        return row.at(*shape).rows_per_second / self.rows[0].at(*shape).rows_per_second

    def latency_gain(self, row: Measured) -> float:
        """How many times shorter the median call is than the baseline's."""
        shape = self.latency_shape
        return self.rows[0].at(*shape).p50 / row.at(*shape).p50

    def spread(self, row: Measured, shape: tuple[int, int]) -> tuple[float, float]:
        """The smallest and the largest gain over the baseline in any one round, at a shape."""
        pairs = zip(self.rows[0].at(*shape).rounds, row.at(*shape).rounds, strict=True)
        gains = [base / own for base, own in pairs]
        return min(gains), max(gains)

    def size_gain(self, row: Measured) -> float:
        """How many times smaller the files are than the baseline's."""
        return self.rows[0].megabytes / row.megabytes
