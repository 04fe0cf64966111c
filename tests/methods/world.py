"""A task of each kind with its features and a small teacher on disk, for tests of distillation."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import (
    BertConfig,
    PretrainedConfig,
    PreTrainedTokenizerBase,
)

from bermo.data.batches import BatchPlan
from bermo.data.features import Features, make_features
from bermo.data.load import TaskData, load_task
from bermo.encoders.backbone import load_tokenizer
from bermo.methods.assemble import TaskBatches
from bermo.models import tasks as models
from bermo.runs.task_file import trained_task, write_task
from bermo.spec import DataSpec

KINDS = {
    "classification": "box/tense",
    "tagging": "box/arguments",
    "span": "box/answer",
    "choice": "box/ending",
}
CLASSES: Mapping[str, type[models.BermoPreTrainedModel]] = {
    "classification": models.BermoForSequenceClassification,
    "multi-label": models.BermoForSequenceClassification,
    "regression": models.BermoForSequenceClassification,
    "tagging": models.BermoForTokenClassification,
    "span": models.BermoForQuestionAnswering,
    "choice": models.BermoForMultipleChoice,
}


@dataclass(frozen=True)
class World:
    """A task, its features, and a teacher for it on disk."""

    data: TaskData
    tokenizer: PreTrainedTokenizerBase
    train: Features
    valid: Features
    folder: Path

    def student(self, **sizes: Any) -> models.BermoPreTrainedModel:
        return build(self.data, small_bert(**sizes))

    def rows(self, batch_size: int = 8) -> TaskBatches:
        return TaskBatches(self.train, BatchPlan(self.train.lengths, batch_size, seed=1))


def small_bert(**sizes: Any) -> PretrainedConfig:
    defaults = {
        "vocab_size": 2282,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 48,
        "initializer_range": 0.2,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    return BertConfig(**(defaults | sizes))


def build(data: TaskData, config: PretrainedConfig, **more: Any) -> models.BermoPreTrainedModel:
    torch.manual_seed(3)
    labels: dict[str, Any] = {}
    if data.task.kind in ("classification", "tagging"):
        labels = {"num_labels": len(data.labels)}
    elif data.task.kind == "multi-label":
        labels = {"num_labels": len(data.labels), "problem_type": "multi_label_classification"}
    elif data.task.kind == "regression":
        labels = {"num_labels": 1}
    kind = CLASSES[data.task.kind]
    return kind.from_backbone(config, mix={"dropout": 0.0}, head_dropout=0.0, **labels, **more)


def save(model: models.BermoPreTrainedModel, data: TaskData, folder: Path) -> Path:
    model.save_pretrained(folder)
    load_tokenizer("box").save_pretrained(folder)
    write_task(folder, trained_task(data, DataSpec()))
    return folder


@cache
def make_world(home: Path, kind: str) -> World:
    spec = DataSpec(task=KINDS.get(kind, "own"), limit=40, max_length=40, cache=str(home / "cache"))
    if kind in ("regression", "multi-label"):
        cells = [f"{k / 7:.2f}" if kind == "regression" else "|".join("abc"[: k % 4]) for k in range(40)]
        lines = [f"the dog {'sees ' * (k % 5)}a cat\t{cell}" for k, cell in enumerate(cells)]
        file = home / f"{kind}.tsv"
        file.write_text("text\tscore\n" + "\n".join(lines) + "\n")
        spec = replace(spec, train=str(file), valid=str(file), max_unknown=1.0)
    data, tokenizer = load_task(spec), load_tokenizer("box")
    train, valid = (
        make_features(rows, data.task, data.labels, tokenizer, spec, has_segments=True)
        for rows in (data.train, data.valid)
    )
    teacher = build(data, small_bert(hidden_size=48, num_hidden_layers=4, num_attention_heads=3))
    return World(data, tokenizer, train, valid, save(teacher, data, home / kind))
