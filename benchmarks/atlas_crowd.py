"""Methods and seeds of atlases, side by side on one GPU, the most wanted first, until a time is over.

    python benchmarks/atlas_crowd.py ENCODER DATA OUT WANTED --seconds 400

ENCODER is a folder (gte-small), DATA one with a folder for each task (sst2, mrpc). WANTED is a file of lines
"TASK METHOD SEED,SEED", the most wanted first; the dense models that they need are made before them. The
folders, OUT/TASK/METHOD/seed-N, are those of atlas.sh, and the same command goes on there. What a method
ships is scored as soon as it is there, and never timed: that needs an idle machine. Then, for each task:

    python benchmarks/atlas_rows.py OUT/sst2 results/atlas-gpu.json
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Literal

sys.path.insert(0, str(Path(__file__).parents[1]))
from bermo.atlas.baselines import BASELINES
from bermo.atlas.chain import Base, Chain, make_chain
from bermo.atlas.checks import Rows, read_rows
from bermo.atlas.joining import baseline_row, student_row
from bermo.atlas.measure import measure
from bermo.atlas.methods import DENSE, METHODS
from bermo.atlas.prepare import make_base
from bermo.atlas.students import STUDENTS
from bermo.jobs.job import Job, has_ended
from bermo.jobs.local import Local, worker_environments
from bermo.spec import DataSpec, MixSpec, ModelSpec, RunSpec, TrainSpec

LIMITS = {"sst2": 20_000}
"""Training rows of a task; of others all."""
WAIT_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task's rows, and what its methods share."""

    rows: Rows
    base: Base


@dataclass(frozen=True)
class Place:
    """Where everything is."""

    encoder: str
    data: Path
    out: Path
    device: Literal["auto", "cpu", "cuda"]
    limit: int | None

    def task(self, name: str) -> Task:
        """Read the rows of a task, and write the files that its methods read."""
        data = DataSpec(task=name, folder=str(self.data / name), limit=self.limit or LIMITS.get(name))
        train = TrainSpec(epochs=3.0, precision="bf16", device=self.device)
        model = ModelSpec(backbone=self.encoder, mix=MixSpec(kind="none"))
        run, rows = RunSpec(model=model, data=data, train=train), read_rows(data)
        return Task(rows=rows, base=make_base(run, rows, self.out / name))


@dataclass(kw_only=True)
class Crowd:
    """Jobs of all lines; some wait, some are under way, some are over.

    One that fails, as where the memory of a GPU is full, is called again once all others have started.
    """

    local: Local
    room: Mapping[bool, int]
    """How many train at a time, and how many do not."""
    waiting: list[tuple[str, Job]] = field(default_factory=list)
    under_way: Counter[bool] = field(default_factory=Counter)
    done: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    failed_once: set[str] = field(default_factory=set)

    def add(self, task: str, jobs: Sequence[Job]) -> None:
        """Let jobs wait, but those that others wait for already."""
        known = {f"{of}/{job.name}" for of, job in self.waiting}
        self.waiting += [(task, job) for job in jobs if f"{task}/{job.name}" not in known]

    def start(self) -> None:
        """Start the most wanted jobs that need nothing more, as many as there is room for."""
        for task, job in list(self.waiting):
            needs = {f"{task}/{name}" for name in job.needs}
            if needs & self.lost:
                self._end(task, job, is_done=False)
            elif needs <= self.done and has_ended(job):
                self._end(task, job, is_done=True)
            elif needs <= self.done and self.under_way[_trains(job)] < self.room[_trains(job)]:
                self.waiting.remove((task, job))
                self.under_way[_trains(job)] += 1
                self.local.submit(job)

    def wait(self) -> None:
        """Hear of a command that has ended."""
        ended = self.local.wait(WAIT_SECONDS)
        if ended is None:
            return
        job, task = ended.job, ended.job.folder.parents[2].name
        name = f"{task}/{job.name}"
        self.under_way[_trains(job)] -= 1
        is_done = ended.code == 0 or (job.makes is not None and job.makes.exists())
        if is_done or name in self.failed_once:
            self._end(task, job, is_done=is_done)
        else:
            self.failed_once.add(name)
            self.waiting.append((task, job))

    def _end(self, task: str, job: Job, *, is_done: bool) -> None:
        self.waiting = [one for one in self.waiting if one != (task, job)]
        (self.done if is_done else self.lost).add(f"{task}/{job.name}")
        if not is_done:
            print(f"{task}/{job.name} failed: {job.log}", flush=True)


def _trains(job: Job) -> bool:
    return job.words[0] in ("train", "compress")


Key = tuple[str, str, int]
"""A task, a method and a seed."""


class Scoring:
    """What each method ships is scored in processes of their own, the dense model of its seed first."""

    def __init__(self, place: Place, chains: Mapping[Key, Chain | None], pool: ProcessPoolExecutor) -> None:
        self.place, self.chains, self.pool = place, chains, pool
        self.futures = dict[Key, Future[None]]()
        self.started = time.monotonic()

    def submit(self, done: Collection[str]) -> None:
        """Score what has ended, and whose dense model is scored."""
        for key, chain in self.chains.items():
            task, method, seed = key
            dense = self.futures.get((task, DENSE, seed))
            ended = chain is None or f"{task}/{chain.jobs[-1].name}" in done
            if key not in self.futures and ended and (method == DENSE or (dense and dense.done())):
                self.futures[key] = self.pool.submit(score, self.place, *key)
                self.futures[key].add_done_callback(partial(self._tell, key))

    def is_over(self, lost: Set[str]) -> bool:
        """Tell whether nothing is left that can be scored."""
        open_keys = [key for key in self.chains if key not in self.futures or not self.futures[key].done()]
        return all(self._is_lost(key, lost) for key in open_keys)

    def _is_lost(self, key: Key, lost: Set[str]) -> bool:
        task, _, seed = key
        chain = self.chains[key]
        names = [f"{task}/{DENSE}/seed-{seed}/1-train"]
        names += [f"{task}/{job.name}" for job in chain.jobs] if chain else []
        return not lost.isdisjoint(names)

    def _tell(self, key: Key, future: Future[None]) -> None:
        error = None if future.cancelled() else future.exception()
        how = "scored" if error is None else f"failed: {error}"
        print(f"{time.monotonic() - self.started:5.0f} s  {'/'.join(map(str, key))} {how}", flush=True)


@cache
def _task(place: Place, name: str) -> Task:
    """Read a task once in each process."""
    return place.task(name)


def score(place: Place, task: str, method: str, seed: int) -> None:
    """Score what one seed of a method ships."""
    known = _task(place, task)
    if method in METHODS:
        measure(make_chain(METHODS[method], seed, known.base), known.base, threads=1)
    elif method in STUDENTS:
        student_row(STUDENTS[method], known.rows, [seed], known.base)
    else:
        baseline_row(BASELINES[method], known.rows, [seed], known.base)


def read_wanted(path: Path) -> list[Key]:
    """Return what is wanted, dense models before what needs them."""
    keys = list[Key]()
    for line in path.read_text(encoding="utf-8").splitlines():
        task, method, seeds = line.split()
        for seed in map(int, seeds.split(",")):
            keys += [(task, DENSE, seed), (task, method, seed)]
    return list(dict.fromkeys(keys))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name in ("encoder", "data", "out", "wanted"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--seconds", type=float, default=400.0)
    parser.add_argument("--trainings", type=int, default=14, help="at a time")
    parser.add_argument("--exports", type=int, default=8, help="at a time")
    parser.add_argument("--scorers", type=int, default=6, help="at a time")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--limit", type=int, help="training rows, for a trial")
    given = parser.parse_args()
    place = Place(str(given.encoder), given.data, given.out, given.device, given.limit)
    local = Local(worker_environments(given.trainings + given.exports, None))
    crowd = Crowd(local=local, room={True: given.trainings, False: given.exports})
    chains = dict[Key, Chain | None]()
    for task, method, seed in read_wanted(given.wanted):
        base = _task(place, task).base
        chain = make_chain(METHODS[method], seed, base) if method in METHODS else None
        chains[task, method, seed] = chain
        crowd.add(task, chain.jobs if chain else ())
    pool = ProcessPoolExecutor(given.scorers, get_context("spawn"))
    scoring = Scoring(place, chains, pool)
    while time.monotonic() - scoring.started < given.seconds and not scoring.is_over(crowd.lost):
        crowd.start()
        crowd.wait()
        scoring.submit(crowd.done)
    # What is under way goes on by the same command; nobody waits for it.
    for process in active_children():
        process.kill()
    local.nursery.process.kill()
    scored = sum(future.done() and future.exception() is None for future in scoring.futures.values())
    print(f"{scored} of {len(chains)} scored after {time.monotonic() - scoring.started:.0f} s.", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
