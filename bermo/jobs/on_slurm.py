"""Jobs on Slurm by submitit, as arrays; where there is no Slurm, submitit's local executor takes its place.

At its time limit or when it is preempted, a job gets SIGUSR2: the run saves its state, and submitit requeues
the job, which goes on. The queue, the machines and the disk of the folders are Slurm's.
"""

import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import submitit
from submitit.helpers import DelayedSubmission

from bermo.jobs.executor import KILLED, Ended
from bermo.jobs.job import RECORDS, Job
from bermo.jobs.logs import make_room

SAVING_SECONDS = 120
"""Between the signal and the end of a job's time."""
MOST_TIMEOUTS = 1000
ROOM = 16
"""Trials of a search at a time: each learns from those before it. Slurm's own queue has no end."""


@dataclass
class Command:
    """What submitit calls on the machine of a job: a command of bermo in a process of its own."""

    words: tuple[str, ...]
    log: Path
    folder: Path
    process: "subprocess.Popen[bytes] | None" = None

    def __call__(self) -> None:
        """Run the command, and leave its exit code in a file."""
        make_room(self.log)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "bermo", *self.words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        try:
            code = self.process.wait()
        except BaseException:
            self.process.terminate()
            raise
        code_file(self.log).write_text(str(code), encoding="ascii", newline="\n")

    def checkpoint(self) -> DelayedSubmission:
        """Let the run save its state; the job is queued again with the same command."""
        assert self.process is not None
        self.process.terminate()
        self.process.wait()
        return DelayedSubmission(replace(self, process=None))


def code_file(log: Path) -> Path:
    """The file of the exit code: read in place of submitit's pickle of a result."""
    return log.with_suffix(".code")


class OnSlurm:
    """All jobs are given to Slurm at once; its queue decides when each starts."""

    def __init__(self, out: Path, partition: str, hours: float, gpus: int) -> None:
        folder = out / RECORDS / "submitit" / "%j"
        self.room = ROOM
        self.engine = submitit.AutoExecutor(folder=folder, slurm_max_num_timeout=MOST_TIMEOUTS)
        self.engine.update_parameters(
            timeout_min=max(1, round(60 * hours)),
            slurm_partition=partition,
            slurm_signal_delay_s=SAVING_SECONDS,
            gpus_per_node=gpus,
            name="bermo",
        )
        self.queue: deque[Job] = deque()
        self.running: dict[str, tuple[Job, Any]] = {}

    def submit(self, job: Job) -> None:
        self.queue.append(job)

    def wait(self, seconds: float) -> Ended | None:
        self._send()
        for name, (job, sent) in self.running.items():
            if sent.done():
                del self.running[name]
                return Ended(job=job, code=_code(job))
        time.sleep(seconds)
        return None

    def stop(self, job: Job) -> None:
        if job.name in self.running:
            self.running[job.name][1].cancel()

    def close(self) -> None:
        for _, sent in self.running.values():
            sent.cancel()
        while not all(sent.done() for _, sent in self.running.values()):
            time.sleep(0.1)

    def _send(self) -> None:
        """Give what is queued to Slurm, as one array."""
        jobs, self.queue = list(self.queue), deque()
        if not jobs:
            return
        for job in jobs:
            job.log.parent.mkdir(parents=True, exist_ok=True)
            code_file(job.log).unlink(missing_ok=True)
        with self.engine.batch():
            sent = [
                self.engine.submit(Command(words=job.words, log=job.log.absolute(), folder=Path.cwd()))
                for job in jobs
            ]
        self.running |= {job.name: (job, one) for job, one in zip(jobs, sent, strict=True)}


def _code(job: Job) -> int:
    """Return the exit code of a command; one that left none was killed with its job."""
    path = code_file(job.log)
    if not path.exists():
        return KILLED
    code = int(path.read_text(encoding="ascii"))
    return code if code >= 0 else KILLED
