"""Which models can have their top layer computed for the one token that a head reads (ship/export/top.py)."""

from typing import TypeGuard

from transformers import PreTrainedModel

from bermo.encoders.families import family_of
from bermo.models.tasks import BermoForSequenceClassification


def can_cut_top(model: PreTrainedModel) -> TypeGuard[BermoForSequenceClassification]:
    """Tell whether a model reads one token of each text, and its family's top layer can be cut to it."""
    if not isinstance(model, BermoForSequenceClassification) or model.config.pooling == "mean":
        return False
    if model.config.pairs == "apart":
        return False
    if model.config.kept_tokens is not None:
        return False
    inner = model.config.backbone
    return (
        family_of(inner).export.can_cut_top
        and model.mix.is_per_token
        and not getattr(inner, "is_decoder", False)
        and not getattr(inner, "chunk_size_feed_forward", 0)
    )
