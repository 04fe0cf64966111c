"""What can be said of an atlas without torch: mistakes, the tiny form, its rows, and whose folder it is."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bermo.atlas.spec import AtlasSpec
from bermo.data.load import load_task
from bermo.data.own_metric import is_function
from bermo.data.rows import TextRows, digest
from bermo.data.tasks import OWN, TaskData
from bermo.errors import BermoError
from bermo.runs.folder import check_empty, fixed_part
from bermo.spec import DataSpec, RunSpec, replace_in

IDENTITY = "atlas-of.json"
"""The file in the folder of an atlas that says of what it is."""
TINY_TRAIN = {"epochs": 2.0, "batch_size": 16, "lr": 5e-4, "evaluations": 1, "contrast": 0.0}
TINY_DATA = {"task": "box/object-number", "limit": 480, "max_length": 64}
TINY_BENCH = {"batches": (1, 16), "lengths": (16,), "rounds": 2}
PLACES = {"data": ("folder", "train", "valid"), "model": ("backbone",), "distill": ("unlabelled",)}
"""Paths of a spec: of these only the last name counts, so that an atlas goes on on another machine."""
FREE = ("device", "fast", "together")
"""Fields of training that change no number, or hardly."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The rows of the task, as they were read."""

    data: TaskData
    train: TextRows
    valid: TextRows
    unlabelled: TextRows | None = None
    """What taught models read beside the training rows."""

    @property
    def taught(self) -> TextRows:
        """All that a teacher is asked about: the training rows, then those without labels; no labels."""
        parts = [part for part in (self.train, self.unlabelled) if part is not None]
        second = None if self.train.second is None else [text for part in parts for text in part.second or ()]
        return TextRows([text for part in parts for text in part.first], second)


def check_options(spec: AtlasSpec, run: RunSpec) -> None:
    """Refuse what cannot be an atlas, before any file is read."""
    data = run.data
    if spec.tiny and (data.train or data.valid or data.folder or data.hub):
        raise BermoError("--tiny makes its own rows. Leave it out, or the data.")
    if is_function(data.metric):
        raise BermoError(
            f"An atlas says which share of a score each method keeps, but {data.metric} has a scale of its"
            " own. Name a metric of bermo's, such as macro-f1."
        )
    is_own = data.task in OWN and data.hub is None
    if not spec.tiny and is_own and (data.train is None or data.valid is None):
        raise BermoError(
            "An atlas needs --train FILE and --valid FILE: all methods are scored on the same rows. Or name a"
            " task (--task NAME --data FOLDER), or try --tiny."
        )


def tiny_form(spec: AtlasSpec, run: RunSpec) -> tuple[AtlasSpec, RunSpec]:
    """Return the small form: generated sentences for the box, few rows, short benches; what the user gave
    stays.
    """
    run = replace_in(
        run,
        model={"head": run.model.head or "random"},
        data=_unless_given(run.data, DataSpec(), TINY_DATA),
        train=_unless_given(run.train, RunSpec().train, TINY_TRAIN),
    )
    return replace(spec, **_unless_given(spec, AtlasSpec(), TINY_BENCH)), run


def _unless_given(given: Any, usual: Any, wanted: dict[str, Any]) -> dict[str, Any]:
    return {name: v for name, v in wanted.items() if getattr(given, name) == getattr(usual, name)}


def read_rows(data: DataSpec) -> Rows:
    """Read the rows; the atlas compares classifiers of texts and of pairs."""
    task = load_task(data)
    if task.task.kind != "classification" or not isinstance(task.train, TextRows):
        raise BermoError(
            f"bermo atlas compares classifiers of texts or pairs, but {task.task.name} is {task.task.kind}."
            " Use bermo train, shrink, export and bench one after the other."
        )
    assert isinstance(task.valid, TextRows)
    return Rows(data=task, train=task.train, valid=task.valid)


def check_folder(out: Path) -> None:
    """Refuse a folder of something else."""
    if not (out / IDENTITY).exists():
        check_empty(out)


def identity(spec: AtlasSpec, run: RunSpec, rows: Rows) -> dict[str, Any]:
    """What an atlas's folder is of: all that decides its numbers, wherever its files lie."""
    values = fixed_part(run) | {"rows": rows.data.digest}
    values["distill"]["unlabelled"] = spec.unlabelled
    if rows.unlabelled is not None:
        values["texts without labels"] = digest(rows.unlabelled)
    for group, names in PLACES.items():
        for name in names:
            value = values[group][name]
            values[group][name] = None if value is None else Path(value).name
    for name in FREE:
        del values["train"][name]
    return values
