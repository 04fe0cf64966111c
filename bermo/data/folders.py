"""Named tasks from a folder: which file holds which split, and in which form.

A file without splits is divided by a hash of each row's text, so that a row always falls on the same side.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bermo.data.corpora import choice_rows, drop_empty, numbers, read_squad, text_rows
from bermo.data.packed import check_file
from bermo.data.read import read_table
from bermo.data.rows import Rows, TextRows, pick
from bermo.data.tagged import read_tagged
from bermo.data.tasks import Task, TaskData, TaskFile, find_task
from bermo.errors import BermoError, nearest
from bermo.spec import DataSpec

VALID_SHARE = 10
"""A file without splits gives one row in so many to validation."""


@dataclass(frozen=True)
class _Split:
    path: Path
    rows: Rows
    form: TaskFile
    notes: tuple[str, ...]


def read_named(spec: DataSpec) -> TaskData:
    task = find_task(spec.task)
    if spec.folder is None and (spec.train is None or spec.valid is None):
        raise BermoError(
            f"Task {task.name} needs its files: pass --data with their folder (in a recipe:"
            " data.folder=FOLDER)."
        )
    folder = None if spec.folder is None else _find_folder(Path(spec.folder), task)
    if folder is not None and spec.train is None and not _matches(folder, task.train):
        whole = _matches(folder, task.whole)
        if whole:
            return _split_whole(task, whole[0])
    train = _read_split(task, folder, spec.train, "train")
    valid = _read_split(task, folder, spec.valid, "valid")
    return TaskData(
        task=task,
        train=train.rows,
        valid=valid.rows,
        text=train.form.text,
        label=train.form.label,
        notes=(f"train from {train.path.name}, valid from {valid.path.name}", *train.notes, *valid.notes),
    )


def _find_folder(folder: Path, task: Task) -> Path:
    if not folder.is_dir():
        if folder.exists():
            raise BermoError(f"{folder} is a file, but the folder of {task.name} was expected.")
        names = [p.name for p in folder.parent.iterdir()] if folder.parent.is_dir() else []
        raise BermoError(f"There is no folder {folder}." + (nearest(folder.name, names) if names else ""))
    inner = [folder / name for name in task.folders if (folder / name).is_dir()]
    holds = _matches(folder, (*task.train, *task.valid, *task.whole))
    return folder if holds or not inner else inner[0]


def _matches(folder: Path, forms: Sequence[TaskFile]) -> list[Path]:
    """Return the files of the first form whose name is there."""
    for form in forms:
        files = sorted(folder.glob(form.name))
        if files:
            return files
    return []


def _read_split(task: Task, folder: Path | None, given: str | None, split: str) -> _Split:
    forms = task.train if split == "train" else task.valid
    if given is not None:
        path = check_file(Path(given))
    else:
        assert folder is not None, "the caller has checked that a folder or a file was given"
        files = _matches(folder, forms)
        if not files:
            expected = ", ".join(dict.fromkeys(form.name for form in forms))
            there = ", ".join(sorted(item.name for item in folder.iterdir())[:12]) or "nothing"
            which = "training" if split == "train" else "validation"
            raise BermoError(
                f"{folder} has no {which} file of task {task.name}: expected {expected}, but it holds"
                f" {there}. Name your file with --{split}."
            )
        path = files[0]
    return _read_file(task, path, _forms_for(path, forms), split == "train")


def _forms_for(path: Path, forms: Sequence[TaskFile]) -> Sequence[TaskFile]:
    """Return the forms a file of this name may have; a name of the user's own may have any of them."""
    return [form for form in forms if path.match(form.name)] or forms


def _read_file(task: Task, path: Path, forms: Sequence[TaskFile], is_train: bool) -> _Split:
    if task.kind == "span":
        return _Split(path, read_squad(path, is_train), forms[0], ())
    if task.kind == "tagging":
        return _Split(path, read_tagged(path, is_of_entities=True), forms[0], ())
    first = forms[0]
    table = read_table(path, first.header, first.skips_ragged, first.drops_extra)
    fits = (s for s in forms if all(table.has(name) for name in (*s.text, s.label)))
    form = next(fits, first)
    if form.skips_ragged:
        table = drop_empty(table, (*form.text, form.label))
    notes = [f"{path.name}: {form.note}"] if form.note else []
    if table.skipped:
        notes.append(f"{path.name}: {table.skipped} broken rows were left out, as GLUE's users do")
    build = choice_rows if task.kind == "choice" else text_rows
    rows: Rows = build(table, form.text, form.label)
    if task.kind == "regression":
        assert isinstance(rows, TextRows)
        rows = numbers(rows, path)
    return _Split(path, rows, form, tuple(notes))


def _split_whole(task: Task, path: Path) -> TaskData:
    split = _read_file(task, path, task.whole, is_train=True)
    assert isinstance(split.rows, TextRows), "only text tasks have files without splits"
    second = split.rows.second or [""] * len(split.rows)
    keys = (f"{a}\t{b}".encode() for a, b in zip(split.rows.first, second, strict=True))
    is_valid = [int.from_bytes(hashlib.sha256(key).digest()[:8], "big") % VALID_SHARE == 0 for key in keys]
    train = pick(split.rows, [i for i, held in enumerate(is_valid) if not held])
    valid = pick(split.rows, [i for i, held in enumerate(is_valid) if held])
    note = f"{path.name} has no splits: one row in {VALID_SHARE} validates, chosen by a hash of its text"
    return TaskData(
        task=task,
        train=train,
        valid=valid,
        text=split.form.text,
        label=split.form.label,
        notes=(note, *split.notes),
    )
