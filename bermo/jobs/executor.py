"""What starts jobs: on this machine, on Ray, on Slurm. Each has these four calls."""

from dataclasses import dataclass
from typing import Protocol

from bermo.interrupts import SIGNALLED
from bermo.jobs.job import Job

KILLED = SIGNALLED + 9
"""The exit code of a command that was killed, by whatever."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A job whose command has ended, and its exit code."""

    job: Job
    code: int


class Executor(Protocol):
    """Starts the commands of jobs, as many at a time as it has room for."""

    @property
    def room(self) -> int:
        """How many jobs run at a time."""

    def submit(self, job: Job) -> None:
        """Start a job, now or when there is room."""

    def wait(self, seconds: float) -> Ended | None:
        """Return the next job that ends, or None where none does within the seconds."""

    def stop(self, job: Job) -> None:
        """Let a job that runs save its state and end, as Ctrl-C does."""

    def close(self) -> None:
        """Stop all, wait until they have ended, and give back what was taken."""
