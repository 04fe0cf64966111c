"""The end of the nursery (bermo/nursery.py) that starts commands, stops them and hears of their ends."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import IO, Any

from bermo.interrupts import ignored
from bermo.jobs.logs import make_room

PROCESS = "bermo.nursery"


class Nursery:
    """The end of whoever starts commands."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        words = [sys.executable, "-m", PROCESS]
        # Ctrl-C is for the one that started it, which then stops the children one by one.
        with ignored():
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                env={**os.environ, **(environment or {})},
                start_new_session=os.name != "nt",
            )
        self.started = 0
        self.answers: Queue[tuple[int, int] | None] = Queue()
        self.listener = Thread(target=self._listen, name="nursery", daemon=True)
        self.listener.start()

    def start(self, words: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> int:
        """Start a command of bermo; return its number."""
        self.started += 1
        make_room(log)
        asked = {"words": list(words), "log": str(log.absolute()), "environment": dict(environment or {})}
        self._send({"start": self.started, **asked})
        return self.started

    def stop(self, number: int) -> None:
        """Let a command save its state and end, as Ctrl-C does."""
        self._send({"stop": number})

    def wait(self, seconds: float | None = None) -> tuple[int, int] | None:
        """Wait for the next command to end; return its number and exit code.

        None is for a nursery that is gone, and all its commands with it; `queue.Empty` is raised when the
        seconds are over.
        """
        answer = self.answers.get(timeout=seconds)
        if answer is None:
            self.answers.put(None)
        return answer

    def close(self) -> None:
        """Stop what still runs, and wait until it has."""
        with contextlib.suppress(BrokenPipeError):
            _pipe(self.process.stdin).close()
        self.process.wait()
        # A child that was killed with its nursery may hold the pipe a moment longer.
        self.listener.join(timeout=5)
        if not self.listener.is_alive():
            _pipe(self.process.stdout).close()

    def _listen(self) -> None:
        for line in _pipe(self.process.stdout):
            ended = json.loads(line)
            self.answers.put((ended["ended"], ended["code"]))
        self.answers.put(None)

    def _send(self, message: Mapping[str, Any]) -> None:
        # One that is gone answers at the next wait.
        with contextlib.suppress(BrokenPipeError):
            _pipe(self.process.stdin).write(json.dumps(message) + "\n")
            _pipe(self.process.stdin).flush()


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
