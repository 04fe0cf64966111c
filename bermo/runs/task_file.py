"""task.json: what the model beside it was trained for, so that its folder can be moved and used alone."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from transformers import PretrainedConfig

from bermo.data.load import own_task
from bermo.data.tasks import TASKS, Kind, Task, TaskData, with_metric
from bermo.encoders import where
from bermo.encoders.sentence import SentenceSettings, is_sentence_folder, read_settings
from bermo.errors import BermoError
from bermo.files import reading, write_json
from bermo.nn.heads import MULTI_LABEL
from bermo.runs.model_files import TASK_FILE
from bermo.spec import DataSpec

LONGEST_TEXT = 512
"""Tokens of a text that a sentence encoder reads where no file says; its positions may be fewer."""
HEADS: dict[str, Kind] = {
    "ForSequenceClassification": "classification",
    "ForTokenClassification": "tagging",
    "ForQuestionAnswering": "span",
    "ForMultipleChoice": "choice",
    "ForSentenceEmbedding": "embedding",
}
"""How the name of a model class ends, and the kind of task that its head is for."""


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


def read_task(folder: Path, config: PretrainedConfig) -> TrainedTask:
    """Read task.json; beside a plain transformers model there is none, and the head tells the task."""
    path = folder / TASK_FILE
    if not path.exists():
        is_sentence = is_sentence_folder(folder)
        return embedding_task(read_settings(folder)) if is_sentence else _task_of_head(folder, config)
    with reading(path, "Copy it anew from where the model was saved."):
        values = json.loads(path.read_text(encoding="utf-8"))
        kind, labels = values["kind"], tuple(map(str, values["labels"]))
        if kind not in get_args(Kind):
            raise ValueError(f'there is no kind of task "{kind}"')
        if labels and len(labels) != config.num_labels:
            raise ValueError(f"{len(labels)} labels for a model that has {config.num_labels}")
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


def embedding_task(settings: SentenceSettings) -> TrainedTask:
    """Return what a sentence encoder is for."""
    return TrainedTask(
        task=own_task("embedding"),
        labels=(),
        text=("text",),
        max_length=settings.max_length or LONGEST_TEXT,
        stride=DataSpec().stride,
    )


def has_head(config: PretrainedConfig) -> bool:
    """Tell whether the class that a config names has a head for a task."""
    return _kind_of_head(config) is not None


def _kind_of_head(config: PretrainedConfig) -> Kind | None:
    name = next(iter(config.architectures or ()), "")
    return next((kind for ending, kind in HEADS.items() if name.endswith(ending)), None)


def _task_of_head(folder: Path, config: PretrainedConfig) -> TrainedTask:
    name, kind = next(iter(config.architectures or ()), ""), _kind_of_head(config)
    if kind is None:
        model = "" if folder == where.BOX else f" --model {folder}"  # the box is the default
        raise BermoError(
            f"{folder if model else 'box'} holds {name or 'a model'} without a head for a task. Train one on"
            f" it first, and give that run: bermo train{model} --train FILE --out runs/mine"
        )
    if kind == "classification" and config.problem_type == MULTI_LABEL:
        kind = "multi-label" if (config.num_labels or 0) > 1 else "reranker"
    elif kind == "classification" and config.num_labels == 1:
        kind = "regression"
    names: dict[int, str] = config.id2label or {}  # type: ignore[assignment]
    labels = tuple(str(names[index]).removeprefix("LABEL_") for index in sorted(names))
    defaults = DataSpec()
    return TrainedTask(
        task=own_task(kind),
        labels=() if kind in ("regression", "embedding", "reranker") else labels,
        text=(),
        max_length=defaults.max_length,
        stride=defaults.stride,
    )
