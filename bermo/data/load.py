"""A task's training and validation rows, read and checked before any model is loaded.

load_task(DataSpec) -> TaskData: named tasks from a folder, own files, a hub dataset, generated sentences
"""

from dataclasses import replace
from typing import cast

from bermo.data.apart import OwnApart, read_apart
from bermo.data.corpora import choice_rows
from bermo.data.folders import read_named
from bermo.data.generated import generate_rows
from bermo.data.hub import read_hub
from bermo.data.own import OwnRows, read_own, rows_of_tables
from bermo.data.own_metric import OwnMetric, is_function, read_metric
from bermo.data.probing import read_probing_task
from bermo.data.rows import Rows, TextRows, head, label_names
from bermo.data.table import Table
from bermo.data.tags_and_questions import WORD_TASKS, read_tags_or_questions
from bermo.data.tasks import OWN, Kind, TaskData, find_task, own_task, scored_by, with_metric
from bermo.errors import BermoError, nearest, shortened
from bermo.spec import DataSpec

GENERATED_TRAIN, GENERATED_VALID, GENERATED_VALID_LEAST = 4000, 1000, 48


def load_task(spec: DataSpec) -> TaskData:
    """Read the task that `spec` names; whatever would spoil a training is an error."""
    own = _function(spec)
    if spec.task.startswith("probe/") and spec.folder is None:
        spec = replace(spec, task=spec.task.replace("probe/", "box/"))
    if spec.task.startswith("box/"):
        data = _generate(spec)
    elif spec.task.startswith("probe/"):
        data = read_probing_task(spec)
    elif spec.hub is not None:
        data = _from_hub(spec)
    elif spec.task == "own/embedding":
        data = _apart_data(read_apart(spec))
    elif spec.task in WORD_TASKS:
        data = read_tags_or_questions(spec, own_task(cast(Kind, spec.task.removeprefix("own/"))))
    elif spec.task in OWN:
        data = _own_data(read_own(spec))
    else:
        data = read_named(spec)
    return _checked(data, spec, own)


def task_of_tables(spec: DataSpec, train: Table, valid: Table | None = None) -> TaskData:
    """Return the task of tables that are in memory, as `load_task` would read them from the user's files."""
    own = _function(spec)
    return _checked(_own_data(rows_of_tables(spec, train, valid)), spec, own)


def _function(spec: DataSpec) -> OwnMetric | None:
    """Return the function that the user named as the metric, read before anything that takes long."""
    return read_metric(str(spec.metric)) if is_function(spec.metric) else None


def _checked(data: TaskData, spec: DataSpec, own: OwnMetric | None) -> TaskData:
    data = replace(data, train=head(data.train, spec.limit))
    labels = data.task.labels or _labels(data.train)
    _check_labels(data, labels, spec)
    task = data.task if own is not None else with_metric(data.task, spec.metric, len(labels))
    data = replace(data, task=task, labels=labels)
    return data if own is None else scored_by(data, own)


def _generate(spec: DataSpec) -> TaskData:
    task = find_task(spec.task)
    name = spec.task.removeprefix("box/")
    # A short training set needs no long validation set, so that tiny runs stay tiny.
    num_valid = min(GENERATED_VALID, max(GENERATED_VALID_LEAST, spec.limit or GENERATED_VALID))
    train, valid = generate_rows(name, (spec.limit or GENERATED_TRAIN, num_valid), seed=0)
    note = f"sentences made by the grammar of {name}, all different"
    return TaskData(task=task, train=train, valid=valid, text=("text",), notes=(note,))


def _from_hub(spec: DataSpec) -> TaskData:
    task = None if spec.task in OWN else replace(find_task(spec.task), labels=None)
    loaded = read_hub(str(spec.hub), None if task is None else task.kind)
    if loaded.rows is not None and task is not None:
        train, valid = loaded.rows
        return TaskData(task=task, train=train, valid=valid, notes=loaded.notes)
    if task is not None and task.kind == "choice":
        form = task.train[0]
        train, valid = (choice_rows(table, form.text, form.label) for table in loaded.tables)
        return TaskData(task=task, train=train, valid=valid, text=form.text, notes=loaded.notes)
    data = _own_data(rows_of_tables(spec, *loaded.tables))
    return replace(data, task=task or data.task, notes=(*loaded.notes, *data.notes))


def _own_data(rows: OwnRows) -> TaskData:
    return TaskData(
        task=own_task(rows.kind),
        train=rows.train,
        valid=rows.valid,
        text=rows.columns.text,
        label=rows.columns.label,
        label_separator=rows.label_separator,
        notes=rows.notes,
        doubts=rows.doubts,
    )


def _apart_data(rows: OwnApart) -> TaskData:
    return TaskData(
        task=own_task("embedding"),
        train=rows.train,
        valid=rows.valid,
        text=rows.columns.text,
        label=rows.columns.label,
        notes=rows.notes,
    )


def _labels(rows: Rows) -> tuple[str, ...]:
    """Return the class names in a fixed order: O first for tags, numbers by size, then by letters."""
    if isinstance(rows, TextRows) and rows.labels and isinstance(rows.labels[0], float):
        return ()
    names = set(label_names(rows))
    order = {name: (name != "O", _size(name), name) for name in names}
    return tuple(sorted(names, key=lambda name: order[name]))


def _size(name: str) -> float:
    try:
        return float(name)
    except ValueError:
        return 0.0


def _check_labels(data: TaskData, labels: tuple[str, ...], spec: DataSpec) -> None:
    if not len(data.valid):
        raise BermoError("There are no validation rows. Pass more data, or a file with --valid.")
    limit = f" among the first {spec.limit} rows (--limit)" if spec.limit is not None else ""
    if data.task.kind == "regression" and isinstance(data.train, TextRows):
        numbers = set(data.train.labels or ())
        if len(numbers) == 1:
            raise BermoError(
                f"All training rows{limit} have the same number, {numbers.pop()}. There is nothing to learn:"
                " give rows of different numbers, or name another column with --label."
            )
    if data.task.kind in ("regression", "span", "embedding", "reranker"):
        return
    seen = set(label_names(data.train))
    known = set(data.task.labels or seen)
    for split, rows in (("training", data.train), ("validation", data.valid)):
        if unknown := sorted(set(label_names(rows)) - known):
            lacking = "" if data.task.labels else f" that the training data lacks{limit}"
            more = f", and {len(unknown) - 1} more such" if unknown[1:] else ""
            raise BermoError(
                f'The {split} data has the label "{shortened(unknown[0])}"{lacking}{more}.'
                + nearest(unknown[0], known)
                + (" Correct it, add training rows with it, or take its rows out." if lacking else "")
            )
    if not seen:
        raise BermoError(f"No training row{limit} has a label. Name another column with --label.")
    if _are_alike(data, seen):
        raise BermoError(
            f'All training rows{limit} have the same label, "{shortened(seen.pop())}". There is nothing to'
            " learn: give rows of at least two classes, or name another column with --label."
        )


def _are_alike(data: TaskData, seen: set[str]) -> bool:
    """Tell whether all training rows have the same answer, so that there is nothing to learn."""
    if data.task.kind == "multi-label" and isinstance(data.train, TextRows):
        return len(set(map(frozenset, data.train.labels or ()))) == 1  # type: ignore[arg-type]
    return len(seen) == 1 and data.task.kind != "choice"
