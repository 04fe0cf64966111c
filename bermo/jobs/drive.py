"""The jobs of an experiment on an executor: started when they can be, called again, and told at the end.

Nothing is kept in memory that the folders do not say: where this process is killed, the same command goes on.
A job that another process holds is waited for. One that was stopped from outside is called again; one that
failed is too, a few times; one that is a mistake is not.
"""

import time
from collections.abc import Callable, Mapping, Sequence

from bermo.interrupts import STOPPED
from bermo.jobs.executor import Ended, Executor
from bermo.jobs.job import REFUSED, Failure, Job, forget_failure, job_state, write_failure
from bermo.runs.state import ENDED

POLL_SECONDS = 0.5
Tell = Callable[[str], None]


class Drive:
    """How far all jobs are."""

    def __init__(self, executor: Executor, jobs: Sequence[Job], retries: int, tell: Tell) -> None:
        self.executor, self.retries, self.tell = executor, retries, tell
        self.num_jobs = len(jobs)
        self.waiting = {job.name: job for job in jobs}
        self.under_way: dict[str, Job] = {}
        self.done: set[str] = set()
        self.failed: dict[str, Failure] = {}
        self.failures: dict[str, int] = {}
        self.told_busy: set[str] = set()

    def run(self) -> None:
        """Run all jobs to their end; Ctrl-C stops them, and comes out of here when they have."""
        for job in self.waiting.values():
            forget_failure(job)
        try:
            while self.waiting or self.under_way:
                for job in list(self.waiting.values()):
                    self._start(job)
                ended = self.executor.wait(POLL_SECONDS)
                if ended is not None:
                    self._note(ended)
        finally:
            self.executor.close()

    def _start(self, job: Job) -> None:
        """Submit a job unless it waits for others, or others have done it."""
        lost = next((name for name in job.needs if name in self.failed), None)
        if lost is not None:
            del self.waiting[job.name]
            self.failed[job.name] = Failure(code=REFUSED, last_lines=(f"{lost} failed, which it needs.",))
        if lost is not None or not self.done.issuperset(job.needs):
            return
        state = job_state(job)
        if state == "running":
            if job.name not in self.told_busy:
                self.tell(f"{job.name}: another process is at work in {job.folder}; waiting for it.")
            self.told_busy.add(job.name)
            return
        del self.waiting[job.name]
        if state in ENDED:
            self.done.add(job.name)
            return
        self.under_way[job.name] = job
        self.executor.submit(job)

    def _note(self, ended: Ended) -> None:
        """Take in how a command ended: it is done, or called again, or it failed."""
        job, code = self.under_way.pop(ended.job.name), ended.code
        if code == 0:
            self.done.add(job.name)
            self.tell(f"{job.name}: {job_state(job)} ({len(self.done)} of {self.num_jobs})")
        elif code == STOPPED:
            self.tell(f"{job.name}: stopped from outside; it is called again.")
            self.waiting[job.name] = job
        else:
            self._fail(job, code)

    def _fail(self, job: Job, code: int) -> None:
        count = self.failures[job.name] = self.failures.get(job.name, 0) + 1
        if code == REFUSED or count > self.retries:
            self.failed[job.name] = write_failure(job, code)
            self.tell(f"{job.name}: failed with {code}.")
        else:
            self.tell(f"{job.name}: ended with {code}; it is called again ({count} of {self.retries}).")
            self.waiting[job.name] = job


def drive(executor: Executor, jobs: Sequence[Job], retries: int, tell: Tell) -> dict[str, Failure]:
    """Run jobs on an executor, say how it goes, and return those that failed."""
    started = time.monotonic()
    now = Drive(executor, jobs, retries, tell)
    now.run()
    tell(f"{len(now.done)} of {len(jobs)} are done, after {time.monotonic() - started:.0f} s.")
    return now.failed


def failures_text(failed: Mapping[str, Failure], jobs: Sequence[Job]) -> str:
    """Name the jobs that failed, each with its last lines and the file of all of them."""
    logs = {job.name: job.log for job in jobs}
    parts = []
    for name, failure in failed.items():
        parts.append(f"{name} failed with {failure.code}; what it printed is in {logs[name]}:")
        parts += [f"    {line}" for line in failure.last_lines]
    return "\n".join(parts)
