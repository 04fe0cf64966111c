"""Named tasks from a folder: which file holds which split, in which of the forms it comes in.

A file without splits is cut by a hash of each row's text, so that a row keeps its side for ever.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bermo.data.corpora import choice_rows, drop_empty, numbers, read_conll, read_squad, text_rows
from bermo.data.read import check_file, read_table
from bermo.data.rows import Rows, TextRows, pick
from bermo.data.tasks import Source, Task, TaskData, find_task
from bermo.errors import BermoError, nearest
from bermo.spec import DataSpec

VALID_SHARE = 10
"""A file without splits gives one row in so many to validation."""


@dataclass(frozen=True)
class _Split:
    path: Path
    rows: Rows
    source: Source
    notes: tuple[str, ...]


def read_named(spec: DataSpec) -> TaskData:
    task = find_task(spec.task)
    if spec.folder is None and (spec.train is None or spec.valid is None):
        raise BermoError(
            f"Task {task.name} needs its files: pass --data with their folder (in a recipe: data.folder=FOLDER)."
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
        text=train.source.text,
        label=train.source.label,
        notes=(f"train from {train.path.name}, valid from {valid.path.name}", *train.notes, *valid.notes),
    )


def _find_folder(folder: Path, task: Task) -> Path:
    if not folder.is_dir():
        names = [p.name for p in folder.parent.iterdir()] if folder.parent.is_dir() else []
        raise BermoError(f"There is no folder {folder}." + (nearest(folder.name, names) if names else ""))
    inner = [folder / name for name in task.folders if (folder / name).is_dir()]
    holds = _matches(folder, (*task.train, *task.valid, *task.whole))
    return folder if holds or not inner else inner[0]


def _matches(folder: Path, sources: Sequence[Source]) -> list[Path]:
    """Return the files of the first source whose name is there."""
    for source in sources:
        found = sorted(folder.glob(source.name))
        if found:
            return found
    return []


def _read_split(task: Task, folder: Path | None, given: str | None, split: str) -> _Split:
    sources = task.train if split == "train" else task.valid
    if given is not None:
        path = check_file(Path(given))
    else:
        assert folder is not None, "the caller has checked that a folder or a file was given"
        found = _matches(folder, sources)
        if not found:
            looked = ", ".join(dict.fromkeys(source.name for source in sources))
            there = ", ".join(sorted(item.name for item in folder.iterdir())[:12]) or "nothing"
            which = "training" if split == "train" else "validation"
            raise BermoError(
                f"{folder} has no {which} file of task {task.name}: looked for {looked}, found {there}."
                f" Name your file with --{split}."
            )
        path = found[0]
    return _read_file(task, path, _sources_for(path, sources), split == "train")


def _sources_for(path: Path, sources: Sequence[Source]) -> Sequence[Source]:
    """Return the forms a file of this name may have; a name of the user's own may have any of them."""
    return [source for source in sources if path.match(source.name)] or sources


def _read_file(task: Task, path: Path, sources: Sequence[Source], is_train: bool) -> _Split:
    if task.kind == "span":
        return _Split(path, read_squad(path, is_train), sources[0], ())
    if task.kind == "tagging":
        return _Split(path, read_conll(path), sources[0], ())
    first = sources[0]
    table = read_table(path, first.header, first.skips_ragged, first.drops_extra)
    fits = (s for s in sources if all(table.has(name) for name in (*s.text, s.label)))
    source = next(fits, first)
    if source.skips_ragged:
        table = drop_empty(table, (*source.text, source.label))
    notes = [f"{path.name}: {source.note}"] if source.note else []
    if table.skipped:
        notes.append(f"{path.name}: {table.skipped} broken rows were left out, as GLUE's users do")
    build = choice_rows if task.kind == "choice" else text_rows
    rows: Rows = build(table, source.text, source.label)
    if task.kind == "regression":
        assert isinstance(rows, TextRows)
        rows = numbers(rows, path)
    return _Split(path, rows, source, tuple(notes))


def _split_whole(task: Task, path: Path) -> TaskData:
    split = _read_file(task, path, task.whole, is_train=True)
    assert isinstance(split.rows, TextRows), "only text tasks come in a file without splits"
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
        text=split.source.text,
        label=split.source.label,
        notes=(note, *split.notes),
    )
