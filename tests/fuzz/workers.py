"""Processes that try inputs side by side; one that dies or hangs in a library is a fault, and is replaced."""

import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fuzz.guard import Outcome
from tests.fuzz.session import Results, input_of, try_input

REPORT_SECONDS = 5.0
STUCK_SECONDS = 120.0
"""A worker that begins no trial for so long hangs in a library."""
ADDRESS_SPACE = 6 << 30
"""What a worker may ask of the system beyond what it has when it starts."""
LONGEST_NAME = 64


@dataclass(frozen=True)
class Plan:
    """What the workers do."""

    readers: tuple[str, ...]
    seed: int
    workers: int
    until: float


def fuzz(plan: Plan) -> Results:
    """Let workers try inputs until the time is over; one that dies or hangs is replaced."""
    context = multiprocessing.get_context("spawn")
    queue, results = context.Queue(), Results()
    running: list[tuple[Any, Any]] = []
    number = 0
    while time.time() < plan.until or running:
        while len(running) < plan.workers and time.time() < plan.until:
            place = context.Array("c", LONGEST_NAME)
            worker = context.Process(target=_work, args=(plan, number, queue, place))
            worker.start()
            running.append((worker, place))
            number += 1
        time.sleep(0.2)
        while not queue.empty():
            results.join_(queue.get())
        running = [pair for pair in running if _is_at_work(*pair, results)]
    while not queue.empty():
        results.join_(queue.get())
    return results


def _is_at_work(worker: Any, place: Any, results: Results) -> bool:
    """Tell whether a worker goes on; what it died or hangs of is a fault."""
    began, _, trial = bytes(place.value).decode().partition(" ")
    reader, _, number = trial.partition(" ")
    is_stuck = bool(trial) and time.time() - float(began) > STUCK_SECONDS
    if worker.is_alive() and not is_stuck:
        return True
    if is_stuck:
        worker.kill()
    worker.join()
    if worker.exitcode and not trial:
        raise RuntimeError(f"a worker ended with {worker.exitcode} before its first trial")
    if worker.exitcode:
        how = "it hung in a library" if is_stuck else f"the process died ({worker.exitcode})"
        results.add_(reader, int(number), Outcome("fault", how))
    return False


def _work(plan: Plan, worker: int, queue: Any, place: Any) -> None:
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
            results.add_(reader, number, try_input(reader, files, Path(home) / "input"))
            if time.time() - reported > REPORT_SECONDS:
                queue.put(results)
                results, reported = Results(), time.time()
    place.value = b""
    queue.put(results)


def _trials(plan: Plan, worker: int) -> Iterator[tuple[str, int]]:
    """Yield the reader that has had the least time so far, and the next number of this worker."""
    spent, numbers = dict.fromkeys(plan.readers, 0.0), dict.fromkeys(plan.readers, 0)
    while time.time() < plan.until:
        reader = min(spent, key=spent.__getitem__)
        started = time.process_time()
        yield reader, worker + 1000 * numbers[reader]
        numbers[reader] += 1
        spent[reader] += time.process_time() - started


def _bound_memory() -> None:
    if sys.platform.startswith("linux"):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + ADDRESS_SPACE
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
