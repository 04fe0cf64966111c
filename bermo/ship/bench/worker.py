"""One candidate in a process of its own: loaded once, then timed and scored when the bench says so.

Thread pools and caches of several runtimes in one process disturb each other. Between its turns a worker
waits on a pipe and costs nothing.
"""

import contextlib
import gc
import multiprocessing
import signal
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bermo.errors import BermoError
from bermo.interrupts import ignored
from bermo.machine import peak_memory_bytes
from bermo.runs.trained import TrainedFolder, open_trained
from bermo.ship.runtimes.candidate import Candidate, answer, open_candidate
from bermo.spec import Precision

SCORING_BATCH = 32


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A folder to be measured, and how it runs."""

    name: str
    folder: Path
    threads: int
    device: str = "cpu"
    precision: Precision = "fp32"


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a worker knows of its candidate without a clock."""

    form: str
    precision: str
    num_bytes: int


class Worker:
    """The bench's end of a worker process."""

    def __init__(self, entry: Entry) -> None:
        context = multiprocessing.get_context("spawn")
        self.entry = entry
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, entry), daemon=True)
        # From its first moment: while it imports, Ctrl-C would end it in a traceback.
        with ignored():
            self.process.start()
        theirs.close()

    def ask(self, what: str, *arguments: Any) -> Any:
        """Send a request and wait for its answer; what the worker could not do is raised here."""
        try:
            self.pipe.send((what, arguments))
            is_fine, result = self.pipe.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise BermoError(
                f"The process of {self.entry.name} died (out of memory?). Leave it out, or try smaller"
                " --batch and --lengths."
            ) from None
        if not is_fine:
            raise BermoError(f"{self.entry.name}: {result}")
        return result

    def close(self, *error: object) -> None:
        """End the process: it finishes what it does, except after an error."""
        self.pipe.close()
        self.process.join(timeout=0 if any(error) else 5)
        if self.process.is_alive():
            self.process.terminate()
            self.process.join()


def serve(pipe: Connection, entry: Entry) -> None:
    """Answer requests until the pipe closes; Ctrl-C is the parent's business."""
    # Windows does not hand down that it is ignored.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # No walk through all that was imported while something is timed, nor at the end.
    gc.freeze()
    served: Served | None = None
    while True:
        try:
            what, arguments = pipe.recv()
        except EOFError:
            return
        try:
            served = served or Served(entry)
            reply = (True, getattr(served, what)(*arguments))
        # It crosses to the parent, which says it.
        except Exception as error:
            reply = (False, str(error) or type(error).__name__)
        try:
            pipe.send(reply)
        except BrokenPipeError:
            return


class Served:
    """A loaded candidate and what can be asked of it."""

    def __init__(self, entry: Entry) -> None:
        # Imported before memory is counted, whether the candidate is torch's or not.
        from transformers.utils import logging

        import bermo.runs.loading
        import bermo.ship.runtimes.torch_candidate  # noqa: F401

        logging.disable_progress_bar()
        self.entry = entry
        self.source: TrainedFolder = open_trained(entry.folder)
        _forget_peak()
        self.memory_before = _memory()
        self.candidate: Candidate = open_candidate(self.source, entry.threads, entry.device, entry.precision)

    def facts(self) -> Facts:
        """Say what was loaded."""
        precision = self.source.precision if self.entry.precision == "fp32" else self.entry.precision
        return Facts(form=self.source.runtime, precision=precision, num_bytes=self.source.num_bytes)

    def time(self, num_rows: int, length: int, iterations: int) -> list[float]:
        """Return the seconds of each of some runs on a batch of this shape."""
        from bermo.ship.runtimes.texts import random_batch

        batch = random_batch(self.source, num_rows, length, self.source.num_words)
        seconds = []
        for _ in range(iterations):
            start = time.perf_counter()
            # Its answers come back to the CPU, so a GPU has finished too.
            self.candidate(batch)
            seconds.append(time.perf_counter() - start)
        return seconds

    def score(self, data: Path) -> tuple[str, float, int]:
        """Return the task's metric, the score on a file with answers, and how many rows it has."""
        from bermo.data.scoring import score
        from bermo.ship.runtimes.texts import labelled

        features = labelled(self.source, data)
        scores = score(features, answer(self.candidate, features, SCORING_BATCH))
        return scores.main, scores.score, len(features)

    def peak_memory(self) -> float:
        """Return what the model and its calls took at most, in MB, over Python and its imports."""
        if self.entry.device != "cpu":
            import torch

            return torch.cuda.max_memory_allocated() / 1e6
        return _memory() - self.memory_before


def _forget_peak() -> None:
    """Count the peak of memory from here on, so that imports do not hide what a model takes; Linux only."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _memory() -> float:
    """The largest memory of this process since its peak was forgotten, in MB."""
    return peak_memory_bytes() / 1e6
