"""python benchmarks/many_runs.py FOLDER [--runs 10000] [--json OUT]: how long `bermo jobs` and `report` take.

The runs are fake: folders with the files that a finished run of one seed leaves, but for its model.
"""

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from bermo.files import seal
from bermo.jobs.job import job_state, jobs_of
from bermo.machine import processor
from bermo.report.page import write_page
from bermo.runs.folder import fixed_part
from bermo.runs.results import SeedResult
from bermo.runs.statistics import summarise
from bermo.spec import Experiment, RunSpec, replace_in

RATES = 50
STEPS = 100


def fake_result(score: float) -> SeedResult:
    """Return a result of a score, as a training of twelve layers leaves it."""
    return SeedResult(
        seed=1,
        metric="accuracy",
        score=score,
        values={"accuracy": score, "macro_f1": score},
        last_score=score,
        diverged=None,
        best_step=STEPS,
        steps=STEPS,
        loss=0.3,
        seconds=60.0,
        rows_per_second=500.0,
        peak_memory_mib=800.0,
        mix_layers=list(range(13)),
        mix_weights=[1 / 13] * 13,
        num_parameters=33_360_000,
        encoder_density=1.0,
        unknown_share=0.0,
        truncated_share=0.0,
        device="none",
        versions={"bermo": "fake"},
        padding_share=0.1,
        density=1.0,
        frozen_score=score,
    )


def fake_run(folder: Path, spec: RunSpec, score: float) -> None:
    """Write the files of a finished run."""
    result = fake_result(score)
    rows = [{"step": step, "loss": 0.5, "gradient_norm": 1.0, "seconds": 1.0} for step in range(STEPS)]
    (folder / "seed-1").mkdir(parents=True)
    written = {
        "spec.json": {"spec": fixed_part(spec), "data": "fake", "places": {}},
        "result.json": asdict(summarise([result])),
        "seed-1/result.json": asdict(result),
    }
    for name, values in written.items():
        (folder / name).write_text(json.dumps(seal(values)), encoding="utf-8")
    lines = "".join(json.dumps(seal(row)) + "\n" for row in rows)
    (folder / "seed-1" / "metrics.jsonl").write_text(lines, encoding="utf-8")


@contextmanager
def timed(name: str, into: dict[str, float]) -> Iterator[None]:
    """Keep and say how long the block takes, by the clock and of the processor."""
    wall, own = time.monotonic(), time.process_time()
    yield
    into[name] = round(time.monotonic() - wall, 1)
    print(f"{name}: {into[name]} s, {time.process_time() - own:.1f} s of the processor")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    arms = {
        f"run-{number:05d}": replace_in(RunSpec(), train={"lr": 1e-5 * (1 + number % RATES)})
        for number in range(options.runs)
    }
    if not options.folder.exists():
        for number, (name, spec) in enumerate(arms.items()):
            fake_run(options.folder / name, spec, 80 + number % RATES / 5)
    seconds: dict[str, float] = {}
    with timed("jobs", seconds):
        states = {job_state(job) for job in jobs_of(Experiment(arms=arms), options.folder)}
    assert states == {"done"}, states
    with timed("report", seconds):
        write_page([options.folder], options.folder.with_suffix(".html"))
    if options.json:
        found = {"processor": processor().name, "runs": options.runs, "seconds": seconds}
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
