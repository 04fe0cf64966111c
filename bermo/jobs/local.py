"""Jobs on this machine: some at a time, each with its GPU or its share of the cores."""

import os
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from queue import Empty

from bermo.errors import BermoError
from bermo.jobs.executor import KILLED, Ended
from bermo.jobs.job import Job
from bermo.jobs.nursery import Nursery
from bermo.machine import usable_cores

THREADS = "OMP_NUM_THREADS"
GPUS = "CUDA_VISIBLE_DEVICES"


def worker_environments(workers: int | None, gpus: Sequence[int] | None) -> list[dict[str, str]]:
    """Return the environment of each worker; several GPUs go round among them."""
    cards = [str(gpu) for gpu in gpus] if gpus else _all_gpus()
    if not cards:
        return [{} for _ in range(workers or usable_cores())]
    return [{GPUS: cards[index % len(cards)]} for index in range(workers or len(cards))]


def _all_gpus() -> list[str]:
    """Name the NVIDIA GPUs that this process may use."""
    if GPUS in os.environ:
        return [name for name in os.environ[GPUS].split(",") if name]
    folder = Path("/proc/driver/nvidia/gpus")
    return [str(index) for index, _ in enumerate(folder.iterdir())] if folder.is_dir() else []


class Local:
    """A worker takes the next job when it has ended one; all are forked from one nursery."""

    def __init__(self, environments: Sequence[Mapping[str, str]]) -> None:
        if os.name == "nt":
            raise BermoError("--on local needs Linux or macOS. Leave --on out, and the runs come one by one.")
        self.free = list(environments)
        self.room = len(self.free)
        self.queue: deque[Job] = deque()
        self.running: dict[int, tuple[Job, Mapping[str, str]]] = {}
        threads = str(max(1, usable_cores() // len(self.free)))
        self.threads = {} if THREADS in os.environ else {THREADS: threads}
        self.nursery = Nursery(self.threads)

    def submit(self, job: Job) -> None:
        self.queue.append(job)

    def wait(self, seconds: float) -> Ended | None:
        while self.queue and self.free:
            job, environment = self.queue.popleft(), self.free.pop()
            self.running[self.nursery.start(job.words, job.log, environment)] = (job, environment)
        try:
            ended = self.nursery.wait(seconds)
        except Empty:
            return None
        if ended is None:
            return self._lose()
        return self._end(*ended)

    def stop(self, job: Job) -> None:
        for number, (running, _) in self.running.items():
            if running == job:
                self.nursery.stop(number)

    def close(self) -> None:
        self.nursery.close()

    def _lose(self) -> Ended | None:
        """The nursery was killed: so were its commands, one after the other; then a new one starts."""
        if self.running:
            return self._end(next(iter(self.running)), KILLED)
        self.nursery.close()
        self.nursery = Nursery(self.threads)
        return None

    def _end(self, number: int, code: int) -> Ended:
        job, environment = self.running.pop(number)
        self.free.append(environment)
        return Ended(job=job, code=code)
