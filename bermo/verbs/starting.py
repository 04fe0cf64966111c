"""What a command does before torch is imported: its first line, and what its files alone can tell."""

import sys
from collections.abc import Collection
from pathlib import Path

from bermo.data.packed import check_file
from bermo.encoders.where import resolve
from bermo.errors import BermoError, nearest
from bermo.files import check_place
from bermo.printing import say
from bermo.runs.model_files import find_model, model_folder, run_of
from bermo.spec import DataSpec, RunSpec
from bermo.verbs.ending import is_main_process


def say_start(verb: str, doing: str) -> None:
    """Print what the command does first, at once: while torch is imported nothing else would be shown."""
    if is_main_process():
        say(f"bermo {verb}: {doing} …", sys.stderr)


def data_name(data: DataSpec) -> str:
    """Name what a run reads, in a few words."""
    files = " and ".join(Path(file).name for file in (data.train, data.valid) if file is not None)
    return files or data.hub or f"task {data.task}"


def check_before(spec: RunSpec, out: Path, made: Collection[str] = ()) -> None:
    """Refuse a training that cannot be, by its options and by the folders that it names.

    `made` are folders of teachers that are trained before it.
    """
    from bermo.methods.checks import check_methods
    from bermo.runs.folder import check_free

    check_methods(spec)
    check_metric(spec.data.metric)
    check_free(out, spec)
    backbone = Path(resolve(spec.model.backbone))
    if run_of(backbone) is not None:
        model_folder(backbone)  # of a run without a model it says why there is none
    check_files(spec.distill.answers, spec.distill.unlabelled)
    if spec.distill.teacher is not None and spec.distill.teacher not in made:
        find_model(spec.distill.teacher)


def check_metric(name: str | None) -> None:
    """Refuse a metric that no kind of task has; a function of the user's own is not looked at."""
    from bermo.data.own_metric import is_function
    from bermo.data.tasks import METRICS, built_in

    if name is None or is_function(name) or built_in(name):
        return
    known = {metric for metrics in METRICS.values() for metric in metrics}
    raise BermoError(f'There is no metric "{name}".{nearest(name, known)}')


def check_files(*paths: Path | str | None) -> None:
    """Refuse a file that is named and not there."""
    for path in paths:
        if path is not None:
            check_file(Path(path).expanduser())


def check_rows(data: str | None) -> None:
    """Refuse a file of rows that is not there; a task's folder or a generated task may stand for it."""
    if data is not None and not data.startswith("box/") and not Path(data).expanduser().is_dir():
        check_files(data)


def check_new(out: Path | None, flag: str = "--out") -> None:
    """Refuse a file or folder that is to be written and exists; `flag` named it."""
    if out is None:
        return
    if out.exists():
        raise BermoError(f"{out} exists and is not overwritten. Give another name with {flag}.")
    check_place(out, flag)
