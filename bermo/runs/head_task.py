"""What the head of a model says of its task, where no task.json stands beside it."""

from pathlib import Path

from transformers import PretrainedConfig

from bermo.data.tasks import Kind, own_task
from bermo.encoders import where
from bermo.encoders.sentence import SentenceSettings, is_sentence_folder, read_settings
from bermo.errors import BermoError
from bermo.nn.heads import MULTI_LABEL
from bermo.runs.model_files import TASK_FILE
from bermo.runs.task_file import TrainedTask, read_task_file
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


def read_task(folder: Path, config: PretrainedConfig) -> TrainedTask:
    """Return what a model was trained for: by task.json, or by the head of a plain transformers model."""
    if (folder / TASK_FILE).exists():
        return read_task_file(folder, config.num_labels)
    if is_sentence_folder(folder):
        return embedding_task(read_settings(folder))
    return _task_of_head(folder, config)


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
