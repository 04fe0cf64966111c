"""What there is to know of each family of encoders: where its layers are, which token speaks for a text."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from transformers import PretrainedConfig

from bermo.errors import BermoError


@dataclass(frozen=True, kw_only=True)
class HeadParts:
    """Where a family's pretrained masked-LM head keeps its parts; all are dense → act → norm → tied."""

    dense: str
    norm: str
    bias: str


@dataclass(frozen=True, kw_only=True)
class Family:
    """What we must know of a model type to read its layers and feed it right."""

    layers: str = "encoder.layer"
    """Path of the layer modules; * stands for every child."""
    embeddings: tuple[str, ...] = ("embeddings",)
    """Modules that turn ids into the input of the first layer."""
    pooling: Literal["first", "last"] = "first"
    has_segments: bool = True
    """Takes token_type_ids, if its config also has more than one segment."""
    is_decoder: bool = False
    reads_neighbours: bool = False
    """Its embeddings look at the tokens beside each one, so padding must be made empty first."""
    is_time_first: bool = False
    """Its layers pass (T, B, D)."""
    has_float_mask: bool = False
    """Subtracts its mask from 1.0, which ONNX allows for fractions only."""
    collector: str | None = None
    """Module that keeps all layers even when nobody asks for them."""
    attention: str | None = None
    """Attention to ask for where the default would unpad the batch and lose its shape."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of every call."""
    head: HeadParts | None = None


_BERT_HEAD = HeadParts(
    dense="cls.predictions.transform.dense",
    norm="cls.predictions.transform.LayerNorm",
    bias="cls.predictions.bias",
)
_ROBERTA_HEAD = HeadParts(dense="lm_head.dense", norm="lm_head.layer_norm", bias="lm_head.bias")
FAMILIES: Mapping[str, Family] = {
    "bert": Family(head=_BERT_HEAD),
    "ernie": Family(head=_BERT_HEAD),
    "roberta": Family(head=_ROBERTA_HEAD),
    "xlm-roberta": Family(head=_ROBERTA_HEAD),
    "camembert": Family(head=_ROBERTA_HEAD),
    "mpnet": Family(has_segments=False, head=_ROBERTA_HEAD),
    "distilbert": Family(
        layers="transformer.layer",
        has_segments=False,
        head=HeadParts(dense="vocab_transform", norm="vocab_layer_norm", bias="vocab_projector.bias"),
    ),
    "albert": Family(
        layers="encoder.albert_layer_groups.*.albert_layers",
        head=HeadParts(dense="predictions.dense", norm="predictions.LayerNorm", bias="predictions.bias"),
    ),
    "electra": Family(
        head=HeadParts(
            dense="generator_predictions.dense",
            norm="generator_predictions.LayerNorm",
            bias="generator_lm_head.bias",
        )
    ),
    "deberta": Family(collector="encoder", head=_BERT_HEAD),
    "deberta-v2": Family(collector="encoder", head=_BERT_HEAD),
    "modernbert": Family(
        layers="layers",
        has_segments=False,
        attention="sdpa",
        head=HeadParts(dense="head.dense", norm="head.norm", bias="decoder.bias"),
    ),
    "mobilebert": Family(reads_neighbours=True),
    "xlnet": Family(
        layers="layer",
        embeddings=("word_embedding",),
        pooling="last",
        is_time_first=True,
        has_float_mask=True,
        options={"use_mems": False},
    ),
    "gpt2": Family(
        layers="h",
        embeddings=("wte", "wpe"),
        pooling="last",
        has_segments=False,
        is_decoder=True,
        options={"use_cache": False},
    ),
}


def family_of(config: PretrainedConfig) -> Family:
    """Return the facts of the config's family, or say which families there are."""
    if config.model_type in FAMILIES:
        return FAMILIES[config.model_type]
    if config.model_type == "bermo":
        raise BermoError(
            "This is a bermo model already, with its mix and head, and not a bare encoder."
            " Load it with AutoModel….from_pretrained, or name the encoder it was made from."
        )
    raise BermoError(
        f'"{config.model_type}" is not an encoder that bermo can read layer by layer.'
        f" Supported: {', '.join(sorted(FAMILIES))}."
    )


def num_layers(config: PretrainedConfig) -> int:
    """Return how many layers there are to mix: h_0 … h_L, the embedding output included."""
    return int(config.num_hidden_layers) * int(getattr(config, "inner_group_num", 1)) + 1


def has_segments(config: PretrainedConfig) -> bool:
    """Tell whether segment ids of sentence pairs mean anything to the encoder."""
    return family_of(config).has_segments and getattr(config, "type_vocab_size", 2) > 1
