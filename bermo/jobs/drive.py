"""Jobs on an executor: started when they can be, called again, and told when they are over.

Nothing is kept in memory that the folders do not say: where this process is killed, the same command goes on.
A job that another process holds is waited for. One that was stopped from outside is called again; one that
failed is too, a few times; one that is a mistake is not.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bermo.interrupts import STOPPED
from bermo.jobs.executor import Ended, Executor
from bermo.jobs.job import RECORDS, REFUSED, Failure, Job, forget_failure, job_state, write_failure
from bermo.runs.state import ENDED

POLL_SECONDS = 0.5
Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Over:
    """A job that is over, and how: stopped is one that was given up."""

    job: Job
    how: Literal["done", "failed", "stopped"]


class Drive:
    """How far all jobs are."""

    def __init__(self, executor: Executor, retries: int, tell: Tell) -> None:
        self.executor, self.retries, self.tell = executor, retries, tell
        self.waiting: dict[str, Job] = {}
        self.under_way: dict[str, Job] = {}
        self.done: set[str] = set()
        self.failed: dict[str, Failure] = {}
        self.failures: dict[str, int] = {}
        self.given_up: set[str] = set()
        self.told_busy: set[str] = set()
        self.num_jobs = 0

    @property
    def num_open(self) -> int:
        """Jobs that are not over."""
        return len(self.waiting) + len(self.under_way)

    def add(self, job: Job) -> None:
        """Take a job in; what failed in it before does not count."""
        forget_failure(job)
        self.waiting[job.name] = job
        self.num_jobs += 1

    def give_up(self, job: Job) -> None:
        """Stop a job that is under way, for good."""
        if job.name in self.under_way and job.name not in self.given_up:
            self.given_up.add(job.name)
            self.executor.stop(job)

    def step(self) -> Over | None:
        """Start what can be started and wait a moment; return a job that is over, if one is."""
        for job in list(self.waiting.values()):
            over = self._start(job)
            if over is not None:
                return over
        ended = self.executor.wait(POLL_SECONDS)
        return None if ended is None else self._note(ended)

    def _start(self, job: Job) -> Over | None:
        """Submit a job unless it waits for others, or others have done it."""
        lost = next((name for name in job.needs if name in self.failed), None)
        if lost is not None:
            del self.waiting[job.name]
            self.failed[job.name] = Failure(code=REFUSED, last_lines=(f"{lost} failed, which it needs.",))
            return Over(job=job, how="failed")
        if not self.done.issuperset(job.needs):
            return None
        state = job_state(job)
        if state == "running":
            if job.name not in self.told_busy:
                self.tell(f"{job.name}: another process is at work in {job.folder}; waiting for it.")
            self.told_busy.add(job.name)
            return None
        del self.waiting[job.name]
        if state in ENDED:
            self.done.add(job.name)
            return Over(job=job, how="done")
        self.under_way[job.name] = job
        self.executor.submit(job)
        return None

    def _note(self, ended: Ended) -> Over | None:
        """Take in how a command ended: it is over, or called again."""
        job, code = self.under_way.pop(ended.job.name), ended.code
        # A command that cannot reach its goal says so by its code, and has made the nearest.
        if code == 0 or (job.makes is not None and job.makes.exists()):
            self.done.add(job.name)
            self.tell(f"{job.name}: {job_state(job)} ({len(self.done)} of {self.num_jobs})")
            return Over(job=job, how="done")
        if job.name in self.given_up:
            return Over(job=job, how="stopped")
        if code != STOPPED:
            return self._fail(job, code)
        self.waiting[job.name] = job
        return None

    def _fail(self, job: Job, code: int) -> Over | None:
        count = self.failures[job.name] = self.failures.get(job.name, 0) + 1
        if code == REFUSED or count > self.retries:
            self.failed[job.name] = write_failure(job, code)
            self.tell(f"{job.name}: failed with {code}.")
            return Over(job=job, how="failed")
        self.tell(f"{job.name}: ended with {code}; it is called again ({count} of {self.retries}).")
        self.waiting[job.name] = job
        return None


def drive(executor: Executor, jobs: Sequence[Job], retries: int, tell: Tell) -> dict[str, Failure]:
    """Run jobs on an executor to their end, and return those that failed; Ctrl-C stops all of them first."""
    started = time.monotonic()
    now = Drive(executor, retries, tell)
    try:
        for job in jobs:
            now.add(job)
        while now.num_open:
            now.step()
    finally:
        executor.close()
    tell(f"{len(now.done)} of {len(jobs)} are done, after {time.monotonic() - started:.0f} s.")
    return now.failed


def failures_text(failed: Mapping[str, Failure], out: Path) -> str:
    """Name the jobs in a folder that failed, each with its last lines and where all of them are."""
    parts = []
    for name, failure in failed.items():
        parts.append(f"{name} failed with {failure.code}; what it printed is in {out / RECORDS}:")
        parts += [f"    {line}" for line in failure.last_lines]
    return "\n".join(parts)
