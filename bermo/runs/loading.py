"""What torch and transformers do for the folder of a trained model: its config, its tokenizer, its model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from bermo.data.tasks import Kind
from bermo.encoders import backbone, families
from bermo.encoders.failures import loading
from bermo.encoders.plain_tokenizer import facts_in_file
from bermo.encoders.trust import (
    ONLY_DATA,
    ONLY_TENSORS,
    check_finite,
    check_loaded,
    check_weights,
    config_of,
)
from bermo.errors import BermoError
from bermo.models.config import BermoConfig, encoder_config
from bermo.models.encoder import BermoPreTrainedModel
from bermo.models.quick_read import read_saved
from bermo.models.sentence import BermoForSentenceEmbedding, settings_of
from bermo.models.tasks import (
    BermoForMultipleChoice,
    BermoForQuestionAnswering,
    BermoForSequenceClassification,
    BermoForTokenClassification,
)
from bermo.nn.fast.overrides import NoSymbols
from bermo.runs.reading import Reading

CLASSES: Mapping[Kind, type[BermoPreTrainedModel]] = {
    "classification": BermoForSequenceClassification,
    "multi-label": BermoForSequenceClassification,
    "regression": BermoForSequenceClassification,
    "tagging": BermoForTokenClassification,
    "span": BermoForQuestionAnswering,
    "choice": BermoForMultipleChoice,
    "embedding": BermoForSentenceEmbedding,
    "reranker": BermoForSequenceClassification,
}
AUTO_CLASSES: Mapping[Kind, Any] = {
    "classification": AutoModelForSequenceClassification,
    "multi-label": AutoModelForSequenceClassification,
    "regression": AutoModelForSequenceClassification,
    "tagging": AutoModelForTokenClassification,
    "span": AutoModelForQuestionAnswering,
    "choice": AutoModelForMultipleChoice,
    "embedding": BermoForSentenceEmbedding,
    "reranker": AutoModelForSequenceClassification,
}


def read_config(folder: Path) -> PretrainedConfig:
    """Read a model's config, and refuse a family that bermo does not know."""
    config = config_of(folder)
    families.family_of(encoder_config(config))
    return config


def has_segments(config: PretrainedConfig) -> bool:
    """Tell whether a model reads the segment ids of sentence pairs."""
    return families.has_segments(encoder_config(config))


def load_tokenizer(folder: Path, config: PretrainedConfig) -> PreTrainedTokenizerBase:
    """Load the tokenizer beside a model; it reads no more than the model has positions for."""
    tokenizer = backbone.load_tokenizer(folder)
    backbone.limit_length_(tokenizer, encoder_config(config))
    return tokenizer


def reading_of(folder: Path) -> Reading | None:
    """Return how the model of a folder reads texts; None where tokenizer.json alone does not tell it."""
    config = read_config(folder)
    facts = facts_in_file(folder, load_tokenizer(folder, config))
    if facts is None:
        return None
    return Reading(
        tokenizer=facts,
        num_words=int(config.vocab_size),
        num_labels=config.num_labels,
        has_segments=has_segments(config),
        is_apart=getattr(config, "pairs", "joined") == "apart",
    )


def create_model(folder: Path, config: PretrainedConfig, kind: Kind) -> PreTrainedModel:
    """Build a model of a folder's class and shape with random weights."""
    if kind == "embedding":
        if isinstance(config, BermoConfig):
            return BermoForSentenceEmbedding(config)
        return BermoForSentenceEmbedding.from_settings(config, settings_of(folder))
    model: PreTrainedModel = AUTO_CLASSES[kind].from_config(config, **ONLY_DATA)
    return model


def load_model(folder: Path, config: PretrainedConfig, kind: Kind) -> PreTrainedModel:
    """Load a folder's model in float32 and eval mode."""
    check_weights(folder)
    if isinstance(config, BermoConfig) and _has_head(config, kind):
        read = read_saved(CLASSES[kind], folder, config)
        if read is not None:
            return read
    with loading("weights", folder), NoSymbols():
        model, report = AUTO_CLASSES[kind].from_pretrained(
            folder, dtype=torch.float32, output_loading_info=True, **ONLY_TENSORS
        )
    if not isinstance(config, BermoConfig):  # a model of ours has checked itself
        check_loaded(folder, report["missing_keys"])
        check_finite(folder, model)
    return model.eval()


def _has_head(config: BermoConfig, kind: Kind) -> bool:
    """Tell whether a folder holds the head too; a sentence encoder may be what lies under another head."""
    return kind != "embedding" or getattr(config, "sentence", None) is not None


def check_is_bermo(folder: Path, config: PretrainedConfig, kind: Kind) -> None:
    """Refuse a plain transformers model where one with a layer mix is wanted."""
    if not isinstance(config, BermoConfig) and kind != "embedding":
        raise BermoError(
            f"{folder} holds a {config.model_type} model, not one that bermo trained. Train it first: bermo"
            f" train --model {folder} …"
        )
