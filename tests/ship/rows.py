"""Benches that nobody ran: rows with a given time for a call."""

from collections.abc import Mapping

from bermo.ship.bench.measured import Bench, Measured, Timing
from bermo.ship.bench.spec import BenchSpec


def make_bench(
    milliseconds: Mapping[str, float], megabytes: Mapping[str, float] | None = None, batch: int = 1
) -> Bench:
    """One row for each name, whose calls all take the given time."""
    rows = tuple(
        Measured(
            name=name,
            form="torch",
            precision="fp32",
            device="cpu",
            megabytes=(megabytes or {}).get(name, 10.0),
            peak_memory_mb=1.0,
            score=90.0,
            timings=(
                Timing(
                    batch=batch,
                    length=8,
                    calls=2,
                    p50=time,
                    p95=time,
                    p99=time,
                    rows_per_second=1000 * batch / time,
                    rounds=(time, 2 * time),
                ),
            ),
        )
        for name, time in milliseconds.items()
    )
    spec = BenchSpec(batches=(batch,), lengths=(8,))
    return Bench(spec=spec, metric="accuracy", threads=1, machine="m", versions={}, rows=rows)
