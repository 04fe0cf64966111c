"""Commands of bermo run side by side, each with a log; what has ended is not begun again."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bermo.jobs.drive import drive
from bermo.jobs.executor import Executor
from bermo.jobs.job import Job
from bermo.jobs.local import Local


@dataclass(frozen=True)
class Stage:
    """A command of bermo, its folder below OUT, the file there that it ends with, and stages before it."""

    name: str
    words: tuple[str, ...]
    ends_with: str = "result.json"
    needs: tuple[str, ...] = ()


def run(stages: Sequence[Stage], out: Path, workers: int) -> list[str]:
    """Run the stages that have not ended, so many at a time, and return the names of those that failed.

    What a stage printed is in the folder `jobs` beside its own.
    """
    jobs = [_job(stage, out) for stage in stages]
    return list(drive(_executor(out, workers), jobs, 0, lambda line: print(line, flush=True)))


def _job(stage: Stage, out: Path) -> Job:
    folder = out / stage.name
    return Job(
        name=stage.name,
        folder=folder,
        words=(*stage.words, "--out", str(folder)),
        needs=stage.needs,
        makes=folder / stage.ends_with,
    )


def _executor(out: Path, workers: int) -> Executor:
    return Local([{"BERMO_CACHE": str((out / "cache").absolute())}] * workers)
