"""The config of a model of bermo's: the backbone's own config, the mix, and how a text becomes one vector."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from transformers import AutoConfig, PretrainedConfig

from bermo.encoders.families import family_of, num_layers
from bermo.errors import BermoError, nearest
from bermo.spec import PAIRS, POOLINGS, USUAL_MIX, MixSpec
from bermo.values import from_dict, to_dict

MixChoice = str | MixSpec | Mapping[str, Any] | None


def mix_options(mix: MixChoice) -> dict[str, Any]:
    """Return the arguments of `build_mix` for a kind's name, a MixSpec, its fields, or None (no mix)."""
    if mix is None or isinstance(mix, str):
        mix = {"kind": mix or "none"}
    options: dict[str, Any] = to_dict(mix if isinstance(mix, MixSpec) else from_dict(MixSpec, mix))
    return options | {"kind": options["kind"] or USUAL_MIX}


class BermoConfig(PretrainedConfig):
    """The backbone's own config, how its layers mix, and how a text becomes one vector.

    >>> config = bermo.BermoConfig(bermo.box().config, mix="across")
    >>> config.mix["kind"], config.pooling
    ('across', 'first')
    """

    model_type = "bermo"
    sub_configs: ClassVar[dict[str, Any]] = {"backbone": AutoConfig}

    def __init__(
        self,
        backbone: PretrainedConfig | dict[str, Any] | None = None,
        mix: MixChoice = "across",
        pooling: str | None = None,
        head_dropout: float = 0.1,
        pairs: str = "joined",
        inner_mix: str | None = None,
        structure: dict[str, Any] | None = None,
        kept_tokens: Sequence[int] | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(backbone, PretrainedConfig):
            backbone = AutoConfig.for_model(**(backbone or {"model_type": "bert"}))
        if inner_mix is not None:
            # Kept with the backbone, whose layers read it: "within", "raw" or "none".
            backbone.inner_mix = inner_mix
        self.backbone = backbone
        self.mix = mix_options(mix)
        self.pooling = pooling or family_of(backbone).pooling
        if self.pooling not in POOLINGS:
            raise BermoError(f'There is no pooling "{pooling}".{nearest(self.pooling, POOLINGS)}')
        self.head_dropout = head_dropout
        # Whether the two texts of a pair are read as one text ("joined") or each by itself ("apart").
        self.pairs = pairs
        if pairs not in PAIRS:
            raise BermoError(f'Pairs cannot be read "{pairs}".{nearest(str(pairs), PAIRS)}')
        # The shape of each layer, where some heads or neurons were taken out (bermo.encoders.structure).
        self.structure = structure
        # The tokens that each layer hands on, in 256ths; None: all (bermo.encoders.tokens).
        self.kept_tokens = None if kept_tokens is None else list(kept_tokens)
        # The base class hands its attention on to the backbone, so it must start from the backbone's.
        attention = kwargs.pop("attn_implementation", None) or backbone._attn_implementation
        super().__init__(**{"tie_word_embeddings": True, **kwargs, "attn_implementation": attention})
        self.pad_token_id = getattr(backbone, "pad_token_id", None)

    @property
    def hidden_size(self) -> int:
        return int(self.backbone.hidden_size)

    @property
    def num_hidden_layers(self) -> int:
        return num_layers(self.backbone) - 1

    @property
    def initializer_range(self) -> float:
        return float(getattr(self.backbone, "initializer_range", 0.02))

    @property
    def vocab_size(self) -> int:
        return int(self.backbone.vocab_size)

    @vocab_size.setter
    def vocab_size(self, value: int) -> None:
        self.backbone.vocab_size = value


def encoder_config(config: PretrainedConfig) -> PretrainedConfig:
    """Return the config of the encoder inside a model of bermo's, or the config itself for a plain model."""
    inner: PretrainedConfig = config.backbone if isinstance(config, BermoConfig) else config
    return inner
