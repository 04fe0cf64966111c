"""A bench in this process: starting one for each candidate would take longer than the test."""

from bermo.progress import Display
from bermo.ship.bench.run import Bench, Measured, _timing, machine
from bermo.ship.bench.spec import BenchSpec
from bermo.ship.bench.worker import Entry, Served


def in_one_process(entries: list[Entry], spec: BenchSpec, display: Display) -> Bench:
    """Measure as the bench does, one call after the other."""
    rows = []
    for entry in entries:
        served = Served(entry)
        facts = served.facts()
        timings = tuple(_timing(shape, [served.time(*shape, 2)]) for shape in spec.shapes)
        score = served.score(spec.data)[1] if spec.data else None
        rows.append(
            Measured(
                name=entry.name,
                form=facts.form,
                precision=facts.precision,
                device="cpu",
                megabytes=facts.num_bytes / 1e6,
                peak_memory_mb=1,
                score=score,
                timings=timings,
            )
        )
    return Bench(
        spec=spec,
        metric="accuracy",
        threads=1,
        machine=machine(["cpu"]),
        versions={},
        rows=tuple(rows),
    )
