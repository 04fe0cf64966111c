"""Jobs: the runs of an experiment as commands that any engine can start, in any order but for teachers.

A job is a command and a folder. The folder is the whole state of the run: the command goes on there, and does
nothing where all is done. It exits with 0 when it is done, with 75 when it was stopped and is to be called
again, with 2 when it cannot be done as it was asked, and with another number when it failed. What a job
printed and how its last attempt failed is kept beside the folders of the runs, in jobs/.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bermo.errors import BermoError
from bermo.files import read_sealed, reading, write_sealed
from bermo.runs.command import train_command
from bermo.runs.state import ENDED, State, state_of
from bermo.spec import Experiment, RunSpec

RECORDS = "jobs"
LAST_LINES = 5
REFUSED = 2
"""The exit code of a command that is a mistake: it would be one again."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A run to be made: its name, its folder, the words after `bermo`, and the jobs that come before it."""

    name: str
    folder: Path
    words: tuple[str, ...]
    seeds: tuple[int, ...] = ()
    needs: tuple[str, ...] = ()
    makes: Path | None = None
    """What is there once the command is done, where it trains no seeds."""

    @property
    def log(self) -> Path:
        """The file of what its last attempt prints; those before it stand beside it (logs.py)."""
        return self.folder.parent / RECORDS / f"{self.folder.name}.log"

    @property
    def record(self) -> Path:
        """The file that says how its last attempt failed; there is none where it did not."""
        return self.log.with_suffix(".json")


@dataclass(frozen=True, kw_only=True)
class Failure:
    """How the last attempt of a job failed."""

    code: int
    last_lines: tuple[str, ...]


def make_job(name: str, spec: RunSpec, folder: Path, needs: Sequence[str] = ()) -> Job:
    """Return the job that trains a spec in a folder."""
    words = train_command(spec, folder)
    return Job(name=name, folder=folder, words=words, seeds=spec.seeds, needs=tuple(needs))


def jobs_of(experiment: Experiment, out: Path) -> list[Job]:
    """Return one job for each arm; an arm whose teacher is another arm's folder needs that one first."""
    folders = {str(out / name): name for name in experiment.arms}
    jobs = []
    for name, spec in experiment.arms.items():
        teacher = folders.get(str(spec.distill.teacher))
        jobs.append(make_job(name, spec, out / name, () if teacher is None else (teacher,)))
    return jobs


def job_state(job: Job) -> State:
    """Tell how far a job is; one that stopped in a failure has failed."""
    if job.makes is None:
        state = state_of(job.folder, job.seeds)
    else:
        state = "done" if job.makes.exists() else "to do"
    is_open = state in ("to do", "stopped")
    return "failed" if is_open and job.record.exists() else state


def has_ended(job: Job) -> bool:
    """Tell whether nothing is left to do."""
    return job_state(job) in ENDED


def write_failure(job: Job, code: int) -> Failure:
    """Keep how an attempt failed, with the last lines that it printed."""
    failure = Failure(code=code, last_lines=_last_lines(job.log))
    write_sealed(job.record, {"code": code, "last_lines": failure.last_lines})
    return failure


def read_failure(job: Job) -> Failure | None:
    """Return how the last attempt failed, if it did; a record that cannot be read says nothing."""
    if not job.record.exists():
        return None
    try:
        with reading(job.record, "Delete it."):
            values = read_sealed(job.record)
            return Failure(code=int(values["code"]), last_lines=tuple(map(str, values["last_lines"])))
    except BermoError:
        return Failure(code=1, last_lines=())


def forget_failure(job: Job) -> None:
    """Begin anew: what failed before does not count."""
    job.record.unlink(missing_ok=True)


def _last_lines(log: Path) -> tuple[str, ...]:
    if not log.exists():
        return ()
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return tuple([line for line in lines if line.strip()][-LAST_LINES:])
