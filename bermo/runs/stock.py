"""What transformers' own classes say of a model of ours: the config of its family with the task's labels."""

import copy
from collections.abc import Mapping
from typing import Any, cast

from transformers import PretrainedConfig
from transformers.models.auto import modeling_auto as auto

from bermo.data.tasks import Kind
from bermo.models.config import encoder_config
from bermo.runs.task_file import TrainedTask

CLASSES: Mapping[Kind, Mapping[str, Any]] = {
    "classification": auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    "multi-label": auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    "regression": auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    "reranker": auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    "tagging": auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
    "span": auto.MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES,
    "choice": auto.MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES,
    "embedding": auto.MODEL_MAPPING_NAMES,
}
"""The class of each family by kind, as transformers names it."""


def stock_config(config: PretrainedConfig, trained: TrainedTask) -> PretrainedConfig:
    """Return the encoder's own config with the class and the labels of the task."""
    inner, kind = copy.deepcopy(encoder_config(config)), trained.task.kind
    name = CLASSES[kind].get(inner.model_type)
    inner.architectures = None if name is None else [str(name)]
    if kind != "embedding":
        labels = trained.labels or tuple(f"LABEL_{index}" for index in range(config.num_labels or 1))
        inner.id2label = cast(Any, dict(enumerate(labels)))
        inner.label2id = {label: index for index, label in enumerate(labels)}
        inner.problem_type = config.problem_type
    return inner
