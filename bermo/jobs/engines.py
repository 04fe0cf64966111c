"""The executor that a user asked for."""

import importlib.util
import math
from pathlib import Path

from bermo.errors import BermoError
from bermo.jobs.executor import Executor
from bermo.jobs.spec import SpreadSpec

EXTRAS = {"ray": "ray", "slurm": "submitit"}
"""The package of each engine that is not always installed; its extra has the engine's name."""


def check_installed(extra: str, package: str) -> None:
    """Refuse what needs a package that is not installed, with the line that installs it."""
    if importlib.util.find_spec(package) is None:
        raise BermoError(f'{package} is not installed: pip install "bermo[{extra}]"')


def check_engine(spread: SpreadSpec) -> None:
    """Refuse an engine whose package is not installed."""
    if spread.on in EXTRAS:
        check_installed(spread.on, EXTRAS[spread.on])


def make_executor(spread: SpreadSpec, out: Path) -> Executor:
    """Start the engine for jobs whose folders are in `out`."""
    match spread.on:
        case "ray":
            from bermo.jobs.on_ray import OnRay

            return OnRay(spread.address, spread.gpus_per_run)
        case "slurm":
            from bermo.jobs.on_slurm import OnSlurm

            assert spread.partition is not None
            assert spread.hours is not None
            gpus = 1 if spread.gpus_per_run is None else math.ceil(spread.gpus_per_run)
            return OnSlurm(out, spread.partition, spread.hours, gpus)
        case _:
            from bermo.jobs.local import Local, worker_environments

            return Local(worker_environments(spread.workers, spread.gpus))
