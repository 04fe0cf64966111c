"""What starting many runs costs: forty tiny ones on two workers against the sum of their own times.

    python benchmarks/side_by_side.py OUT [--runs 40] [--workers 2] [--repeats 3] [--json FILE]

A run's own time is that of its command in a process that has imported everything, on one thread, while as
many others run as there are workers: the mean of a few, half of them before the forty and half after. The
start is that of a worker: a command that does nothing, from the first to its end. `ratio` counts one start
among the own times, `ratio_without_start` counts none. `cpu_ratio` is `ratio` in seconds of a core, to which
waiting does not count and other work on the machine adds little. OUT must not exist; the machine must have
nothing else to do. Several repeats show how far it had.
"""

import argparse
import contextlib
import io
import json
import os
import resource
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import torch

from bermo.cli import main as bermo
from bermo.jobs.drive import drive
from bermo.jobs.job import Job, jobs_of
from bermo.jobs.local import Local
from bermo.machine import processor
from bermo.spec import DataSpec, Experiment, ModelSpec, RunSpec, TrainSpec

ALONE = 5
LIMIT = 1.15


@dataclass(frozen=True, kw_only=True)
class Took:
    """How long something took: by a clock, and in seconds of a core."""

    wall: float
    cpu: float


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


def own_times(out: Path, workers: int) -> list[Took]:
    """Train a few runs one after the other in each of several processes at once; return their times."""
    with get_context("fork").Pool(workers) as pool:
        found = pool.map(alone, [out / str(k) for k in range(workers)], 1)
        # Left alone, a pool ends its processes by a signal, which they would tell of.
        pool.close()
        pool.join()
    return [took for times in found for took in times]


def alone(out: Path) -> list[Took]:
    """Train a few runs one after the other in this process; the first fills caches and does not count."""
    times = []
    for job in jobs_of(Experiment(arms={f"alone-{k}": tiny(k) for k in range(ALONE + 1)}), out):
        began, began_cpu = time.monotonic(), time.process_time()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            assert bermo(list(job.words)) == 0
        times.append(Took(wall=time.monotonic() - began, cpu=time.process_time() - began_cpu))
    return times[1:]


def measure(out: Path, runs: int, workers: int) -> dict[str, float]:
    """Time one start, the forty, and their own times before and after."""
    before, start = own_times(out / "before", workers), start_time(out / "start")
    jobs = jobs_of(Experiment(arms={f"run-{k}": tiny(k) for k in range(runs)}), out / "all")
    took = drive_time(jobs, workers)
    times = before + own_times(out / "after", workers)
    walls = [one.wall for one in times]
    own, own_cpu = statistics.fmean(walls), statistics.fmean(one.cpu for one in times)
    return {
        "own_seconds": round(own, 3),
        "own_seconds_from": round(min(walls), 3),
        "own_seconds_to": round(max(walls), 3),
        "own_cpu_seconds": round(own_cpu, 3),
        "start_seconds": round(start.wall, 2),
        "start_cpu_seconds": round(start.cpu, 2),
        "wall_seconds": round(took.wall, 2),
        "cpu_seconds": round(took.cpu, 2),
        "ratio": round(took.wall / (start.wall + own * runs / workers), 3),
        "ratio_without_start": round(took.wall / (own * runs / workers), 3),
        "cpu_ratio": round(took.cpu / (start.cpu + own_cpu * runs), 3),
    }


def start_time(out: Path) -> Took:
    """Time a command that does nothing."""
    return drive_time([Job(name="nothing", folder=out / "nothing", words=("list",), makes=out)], 1)


def drive_time(jobs: Sequence[Job], workers: int) -> Took:
    """Run all jobs, and return how long it took from the first start to the last end."""
    began, began_cpu = time.monotonic(), children_cpu()
    failed = drive(Local([{} for _ in range(workers)]), jobs, 0, lambda _: None)
    assert not failed, failed
    return Took(wall=time.monotonic() - began, cpu=children_cpu() - began_cpu)


def children_cpu() -> float:
    """The seconds of a core of all processes that have ended below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.out.exists():
        parser.error(f"{options.out} exists; runs that are done already would be timed as nothing.")
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    tries = [measure(options.out / str(k), options.runs, options.workers) for k in range(options.repeats)]
    middle = sorted(tries, key=lambda found: found["ratio"])[len(tries) // 2]
    facts = {"processor": processor().name, "runs": options.runs, "workers": options.workers}
    found = {**facts, **middle, "ratios": [found["ratio"] for found in tries], "wanted": LIMIT}
    print(json.dumps(found, indent=1))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
