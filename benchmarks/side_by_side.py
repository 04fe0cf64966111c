"""What starting many runs costs: forty tiny ones on two workers against the sum of their own times.

    python benchmarks/side_by_side.py OUT [--runs 40] [--workers 2] [--json results/side-by-side.json]

A run's own time is that of its command in a process that has imported everything, on one thread, while as
many others run as there are workers: the mean of a few, half of them before the forty and half after. OUT
must not exist; the machine must have nothing else to do.
"""

import argparse
import contextlib
import io
import json
import os
import statistics
import time
from multiprocessing import get_context
from pathlib import Path

import torch

from bermo.cli import main as bermo
from bermo.jobs.drive import drive
from bermo.jobs.job import jobs_of
from bermo.jobs.local import Local
from bermo.machine import processor
from bermo.spec import DataSpec, Experiment, ModelSpec, RunSpec, TrainSpec

ALONE = 5
LIMIT = 1.15


def tiny(seed: int) -> RunSpec:
    """A run of a few seconds on a CPU."""
    return RunSpec(
        model=ModelSpec(backbone="box"),
        data=DataSpec(task="box/tense", limit=64, max_length=16),
        train=TrainSpec(
            epochs=1, batch_size=16, lr=1e-4, evaluations=1, contrast=0.0, keep="none", device="cpu"
        ),
        seeds=(seed,),
    )


def own_seconds(out: Path, workers: int) -> list[float]:
    """Train a few runs one after the other in each of several processes at once; return their times."""
    with get_context("fork").Pool(workers) as pool:
        return [
            seconds
            for times in pool.map(alone, [out / str(k) for k in range(workers)], 1)
            for seconds in times
        ]


def alone(out: Path) -> list[float]:
    """Train a few runs one after the other in this process; the first fills caches and does not count."""
    times = []
    for job in jobs_of(Experiment(arms={f"alone-{k}": tiny(k) for k in range(ALONE + 1)}), out):
        began = time.monotonic()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            assert bermo(list(job.words)) == 0
        times.append(time.monotonic() - began)
    return times[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.out.exists():
        parser.error(f"{options.out} exists; runs that are done already would be timed as nothing.")
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    before = own_seconds(options.out / "before", options.workers)
    jobs = jobs_of(Experiment(arms={f"run-{k}": tiny(k) for k in range(options.runs)}), options.out / "all")
    began = time.monotonic()
    failed = drive(Local([{} for _ in range(options.workers)]), jobs, 0, lambda _: None)
    wall = time.monotonic() - began
    assert not failed, failed
    after = own_seconds(options.out / "after", options.workers)
    own = statistics.fmean(before + after)
    found = {
        "processor": processor().name,
        "runs": options.runs,
        "workers": options.workers,
        "own_seconds": round(own, 3),
        "own_seconds_from": round(min(before + after), 3),
        "own_seconds_to": round(max(before + after), 3),
        "wall_seconds": round(wall, 2),
        "ratio": round(wall * options.workers / (own * options.runs), 3),
        "wanted": LIMIT,
    }
    print(json.dumps(found, indent=1))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
