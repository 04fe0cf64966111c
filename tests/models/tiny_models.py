"""Tiny models of bermo's with each head, and inputs of the right shape for them."""

from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from bermo.models.encoder import BermoModel, BermoPreTrainedModel
from bermo.models.tasks import (
    BermoForMaskedLM,
    BermoForMultipleChoice,
    BermoForQuestionAnswering,
    BermoForSequenceClassification,
    BermoForTokenClassification,
)
from tests.tiny import make_batch, make_config

HEADS: list[tuple[type[BermoPreTrainedModel], Any]] = [
    (BermoModel, AutoModel),
    (BermoForSequenceClassification, AutoModelForSequenceClassification),
    (BermoForTokenClassification, AutoModelForTokenClassification),
    (BermoForQuestionAnswering, AutoModelForQuestionAnswering),
    (BermoForMultipleChoice, AutoModelForMultipleChoice),
    (BermoForMaskedLM, AutoModelForMaskedLM),
]


def make_model(
    family: str, kind: type[BermoPreTrainedModel] = BermoForSequenceClassification, **options: Any
) -> Any:
    torch.manual_seed(0)
    return kind.from_backbone(make_config(family), **options)


def make_inputs(family: str, kind: type[BermoPreTrainedModel]) -> dict[str, Tensor]:
    batch = make_batch(family, texts=4)
    if kind is BermoForMultipleChoice:
        return {name: value.view(2, 2, -1) for name, value in batch.items()}
    return batch


@torch.no_grad()
def outputs_of(model: Any, inputs: dict[str, Tensor]) -> list[Tensor]:
    return [value for value in model(**inputs).to_tuple() if isinstance(value, Tensor)]
