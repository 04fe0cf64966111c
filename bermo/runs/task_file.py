"""task.json: what the model beside it was trained for, so that its folder can be moved and used alone."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from bermo.data.tasks import TASKS, Kind, Task, TaskData, own_task, with_metric
from bermo.files import reading, write_json
from bermo.runs.model_files import TASK_FILE
from bermo.spec import DataSpec


@dataclass(frozen=True, kw_only=True)
class TrainedTask:
    """What a model was trained for: the task, its labels and text columns, and how long a text may be."""

    task: Task
    labels: tuple[str, ...]
    text: tuple[str, ...]
    """The columns of the training file that held the texts."""
    max_length: int
    stride: int
    label: str | None = None
    """The column that held the labels, where it is known."""
    label_separator: str | None = None
    """What stood between several labels of a row, where the user named it."""


def trained_task(data: TaskData, spec: DataSpec) -> TrainedTask:
    """Return what a model is trained for on these data."""
    return TrainedTask(
        task=data.task,
        labels=data.labels,
        text=data.text,
        max_length=spec.max_length,
        stride=spec.stride,
        label=data.label,
        label_separator=data.label_separator,
    )


def write_task(folder: Path, trained: TrainedTask) -> None:
    """Write task.json beside a model."""
    write_json(
        folder / TASK_FILE,
        {
            "task": trained.task.name,
            "kind": trained.task.kind,
            "metric": trained.task.metric,
            "has_no_answer": trained.task.has_no_answer,
            "labels": trained.labels,
            "text": trained.text,
            "label": trained.label,
            "label_separator": trained.label_separator,
            "max_length": trained.max_length,
            "stride": trained.stride,
        },
    )


def read_task_file(folder: Path, num_labels: int | None) -> TrainedTask:
    """Read the task.json of a model that gives so many labels."""
    path = folder / TASK_FILE
    with reading(path, "Copy it anew from where the model was saved."):
        values = json.loads(path.read_text(encoding="utf-8"))
        kind, labels = values["kind"], tuple(map(str, values["labels"]))
        if kind not in get_args(Kind):
            raise ValueError(f'there is no kind of task "{kind}"')
        if labels and len(labels) != num_labels:
            raise ValueError(f"{len(labels)} labels for a model that has {num_labels}")
        named = TASKS.get(values["task"])
        if named is None:
            named = replace(own_task(kind), has_no_answer=bool(values.get("has_no_answer")))
        return TrainedTask(
            task=with_metric(named, values.get("metric"), len(labels)),
            labels=labels,
            text=tuple(map(str, values["text"])),
            max_length=int(values["max_length"]),
            stride=int(values["stride"]),
            label=values.get("label"),
            label_separator=values.get("label_separator"),
        )
