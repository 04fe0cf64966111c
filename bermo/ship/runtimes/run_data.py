"""The data of a run, with the folder or files that the user named in place of the run's own."""

import json
from dataclasses import replace
from pathlib import Path

from bermo.data.load import load_task
from bermo.data.rows import TextRows
from bermo.data.tasks import OWN, TaskData
from bermo.errors import BermoError
from bermo.files import write_text
from bermo.spec import DataSpec


def with_files(
    data: DataSpec, kind: str, folder: str | None, train: str | None, valid: str | None
) -> DataSpec:
    """Return a run's data with what the user named; own files take the place of a named task's folder."""
    given = {"folder": folder, "train": train, "valid": valid}
    changes = {name: value for name, value in given.items() if value is not None}
    changed = replace(data, **changes)  # type: ignore[arg-type]
    if folder is None and (train or valid) and data.task not in OWN:
        return replace(changed, task=f"own/{kind}", folder=None)
    if changed.task in OWN and changed.train is None and changed.hub is None:
        more = " --data names the folder of a named task." if folder is not None else ""
        raise BermoError(
            "The model does not say on which files it was trained. Name them: --train FILE and --valid FILE."
            + more
        )
    return changed


def valid_file(data: DataSpec, folder: Path, verb: str) -> Path:
    """Return the validation rows as a file: the user's own, or those of the named task, written out."""
    if data.valid is not None:
        return Path(data.valid)
    task = load_task(data)
    if not isinstance(task.valid, TextRows):
        raise BermoError(
            f"bermo {verb} takes texts or pairs with a label, but {task.task.name} is {task.task.kind}."
            " Use bermo train, shrink, export and bench one after the other."
        )
    return write_rows(task, task.valid, folder / "valid.jsonl")


def write_rows(task: TaskData, rows: TextRows, path: Path) -> Path:
    """Write texts or pairs with their answers as JSON lines, in the columns that the task's models read."""
    columns = [rows.first, *([rows.second] if rows.second else [])]
    names = [*(task.text or ("text_a", "text_b"))[: len(columns)], "label"]
    values = zip(*columns, rows.labels or (), strict=True)
    lines = [json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) for row in values]
    write_text(path, "\n".join(lines) + "\n")
    return path
