"""Jobs in this process, one after the other: no imports again, and progress is shown where the user looks."""

import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout

from bermo.crashes import describe, was_interrupted
from bermo.errors import BermoError
from bermo.interrupts import STOPPED
from bermo.jobs.executor import Ended
from bermo.jobs.job import REFUSED, Job
from bermo.printing import visible

Call = Callable[[Sequence[str]], int]
"""Runs the words of a command and returns its exit code."""


class Here:
    """Runs a job when it is waited for; what it prints goes to its log, its progress to the terminal."""

    room = 1

    def __init__(self, call: Call) -> None:
        self.call = call
        self.queue: deque[Job] = deque()

    def submit(self, job: Job) -> None:
        self.queue.append(job)

    def wait(self, seconds: float) -> Ended | None:
        if not self.queue:
            return None
        job = self.queue.popleft()
        code = self._run(job)
        if code == STOPPED:
            # Ctrl-C was for this command too; what the job has saved is whole.
            raise KeyboardInterrupt
        return Ended(job=job, code=code)

    def stop(self, job: Job) -> None:
        """A job that runs is stopped by Ctrl-C; one that waits does not start."""
        self.queue = deque(waiting for waiting in self.queue if waiting != job)

    def close(self) -> None:
        self.queue.clear()

    def _run(self, job: Job) -> int:
        job.log.parent.mkdir(parents=True, exist_ok=True)
        with job.log.open("w", encoding="utf-8", newline="\n") as log:
            try:
                with redirect_stdout(log):
                    return self.call(job.words)
            except BermoError as error:
                if was_interrupted(error):
                    raise KeyboardInterrupt from error
                sentence, code = str(error), REFUSED
            except Exception as error:
                if was_interrupted(error):
                    raise KeyboardInterrupt from error
                sentence, code = describe(error), 1
            print(f"bermo: {visible(sentence)}", file=log)
            print(f"bermo: {visible(sentence)}", file=sys.stderr)
            return code
