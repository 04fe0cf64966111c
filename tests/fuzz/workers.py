"""Processes that try inputs side by side; one that dies or hangs in a library is a fault, and is replaced.

Each has a range of numbers of its own: worker n of a seed makes the trials from n · `RANGE` on.
"""

import multiprocessing
import os
import pickle
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.fuzz.guard import Outcome
from tests.fuzz.session import Results, input_of, try_input
from tests.sittings import sit

REPORT_SECONDS = 5.0
STUCK_SECONDS = 120.0
"""A worker that begins no trial for so long hangs in a library."""
ADDRESS_SPACE = 6 << 30
"""What a worker may ask of the system beyond what it has when it starts."""
LONGEST_NAME = 64
RANGE = 10**7


@dataclass(frozen=True)
class Plan:
    """What the workers do."""

    readers: tuple[str, ...]
    seed: int
    workers: int
    until: float


@dataclass(frozen=True)
class Worker:
    """A process, the trial that it is at, and its reports: on a channel of its own, which no other blocks."""

    process: Any
    place: Any
    reports: Any

    @classmethod
    def started(cls, plan: Plan, number: int) -> "Worker":
        """Start a worker."""
        context = multiprocessing.get_context("spawn")
        place, (reports, channel) = context.Array("c", LONGEST_NAME), context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(plan, number, channel, place), daemon=True)
        process.start()
        channel.close()
        return cls(process, place, reports)

    def count_(self, results: Results) -> None:
        """Count what it has reported."""
        try:
            while self.reports.poll():
                results.join_(self.reports.recv())
        except (EOFError, OSError, pickle.UnpicklingError):  # it died
            return

    def is_at_work(self, seed: int, results: Results) -> bool:
        """Tell whether it goes on; what it died or hangs of is a fault."""
        began, _, trial = bytes(self.place.value).decode().partition(" ")
        reader, _, number = trial.partition(" ")
        is_stuck = bool(trial) and time.time() - float(began) > STUCK_SECONDS
        if self.process.is_alive() and not is_stuck:
            self.count_(results)
            return True
        if is_stuck:
            self.process.kill()
        self.process.join()
        self.count_(results)
        if self.process.exitcode and not trial:
            raise RuntimeError(f"a worker ended with {self.process.exitcode} before its first trial")
        if self.process.exitcode:
            how = "it hung in a library" if is_stuck else f"the process died ({self.process.exitcode})"
            results.add_(reader, seed, int(number), Outcome("fault", how))
        return False


def fuzz(plan: Plan, results: Results, tell: Callable[[], None] = lambda: None) -> None:
    """Let workers try inputs until the time is over, and count them; one that dies or hangs is replaced.

    `tell` is called every few seconds.
    """
    running: list[Worker] = []
    sitting, started, told = sit(results.sittings, plan.seed, plan.workers), time.time(), time.time()
    while time.time() < plan.until or running:
        while len(running) < plan.workers and time.time() < plan.until:
            sitting = replace(sitting, last=sitting.last + 1)
            running.append(Worker.started(plan, sitting.last))
        time.sleep(0.2)
        running = [worker for worker in running if worker.is_at_work(plan.seed, results)]
        seconds = round(sitting.seconds + time.time() - started, 1)
        results.sittings[plan.seed] = replace(sitting, seconds=seconds)
        if time.time() - told > REPORT_SECONDS:
            tell()
            told = time.time()


def _work(plan: Plan, worker: int, channel: Any, place: Any) -> None:
    """Try inputs, of each reader for the same time, and report now and then."""
    sys.dont_write_bytecode = True
    _bound_memory()
    import torch

    torch.set_num_threads(1)
    results, reported = Results(), time.time()
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=memory) as home:
        os.chdir(home)
        for reader, number in _trials(plan, worker):
            place.value = f"{time.time():.0f} {reader} {number}".encode()
            files = input_of(reader, plan.seed, number)
            results.add_(reader, plan.seed, number, try_input(reader, files, Path(home) / "input"))
            if time.time() - reported > REPORT_SECONDS:
                channel.send(results)
                results, reported = Results(), time.time()
    place.value = b""
    channel.send(results)


def _trials(plan: Plan, worker: int) -> Iterator[tuple[str, int]]:
    """Yield the reader that has had the least time so far, and the next number of this worker."""
    spent, numbers = dict.fromkeys(plan.readers, 0.0), dict.fromkeys(plan.readers, 0)
    while time.time() < plan.until:
        reader = min(spent, key=spent.__getitem__)
        started = time.process_time()
        yield reader, worker * RANGE + numbers[reader]
        numbers[reader] += 1
        spent[reader] += time.process_time() - started


def _bound_memory() -> None:
    if sys.platform.startswith("linux"):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + ADDRESS_SPACE
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
