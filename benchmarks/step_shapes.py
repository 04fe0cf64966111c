"""Every family of encoders as a config of one shape, so that the times of their steps can be compared."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import transformers
from transformers import PretrainedConfig


@dataclass(frozen=True)
class Shape:
    """The shape that all families take; MobileBERT keeps its own narrow layers, four in place of one."""

    width: int = 768
    layers: int = 12
    heads: int = 12
    words: int = 30522
    positions: int = 514

    def common(self) -> dict[str, int]:
        """The arguments that most configs take, with a padding token whose id no text of a batch has."""
        return {
            "vocab_size": self.words,
            "hidden_size": self.width,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "intermediate_size": 4 * self.width,
            "max_position_embeddings": self.positions,
            "pad_token_id": 1,
            "bos_token_id": 2,
            "eos_token_id": 3,
        }


BASE = Shape()
TINY = Shape(width=16, layers=2, heads=2, words=60, positions=40)


def _distilbert(shape: Shape) -> PretrainedConfig:
    return transformers.DistilBertConfig(
        vocab_size=shape.words,
        dim=shape.width,
        n_layers=shape.layers,
        n_heads=shape.heads,
        hidden_dim=4 * shape.width,
        max_position_embeddings=shape.positions,
        pad_token_id=1,
    )


def _albert(shape: Shape) -> PretrainedConfig:
    return transformers.AlbertConfig(
        **shape.common(), embedding_size=128, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1
    )


def _deberta(shape: Shape) -> PretrainedConfig:
    return transformers.DebertaConfig(
        **shape.common(), relative_attention=True, pos_att_type=["c2p", "p2c"], type_vocab_size=0
    )


def _deberta_v2(shape: Shape) -> PretrainedConfig:
    """DeBERTa-v3-base's options."""
    return transformers.DebertaV2Config(
        **shape.common(),
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        position_buckets=256,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        position_biased_input=False,
        type_vocab_size=0,
    )


def _modernbert(shape: Shape) -> PretrainedConfig:
    """Gated layers of as many weights: 3 matrices of 8/3 · width in place of 2 of 4 · width."""
    return transformers.ModernBertConfig(
        **shape.common() | {"intermediate_size": 8 * shape.width // 3},
        cls_token_id=2,
        sep_token_id=3,
    )


def _mobilebert(shape: Shape) -> PretrainedConfig:
    return transformers.MobileBertConfig(
        **shape.common() | {"intermediate_size": 2 * shape.width // 3},
        intra_bottleneck_size=shape.width // 4,
        embedding_size=128,
        hidden_dropout_prob=0.1,
    )


def _xlnet(shape: Shape) -> PretrainedConfig:
    return transformers.XLNetConfig(
        vocab_size=shape.words,
        d_model=shape.width,
        n_layer=shape.layers,
        n_head=shape.heads,
        d_inner=4 * shape.width,
        pad_token_id=1,
        bos_token_id=2,
        eos_token_id=3,
    )


def _gpt2(shape: Shape) -> PretrainedConfig:
    return transformers.GPT2Config(
        vocab_size=shape.words,
        n_embd=shape.width,
        n_layer=shape.layers,
        n_head=shape.heads,
        n_positions=shape.positions,
        pad_token_id=1,
        bos_token_id=2,
        eos_token_id=3,
    )


def _common(kind: Callable[..., PretrainedConfig]) -> Callable[[Shape], PretrainedConfig]:
    return lambda shape: kind(**shape.common())


SHAPED: Mapping[str, Callable[[Shape], PretrainedConfig]] = {
    "bert": _common(transformers.BertConfig),
    "roberta": _common(transformers.RobertaConfig),
    "mpnet": _common(transformers.MPNetConfig),
    "distilbert": _distilbert,
    "albert": _albert,
    "electra": lambda shape: transformers.ElectraConfig(**shape.common(), embedding_size=shape.width),
    "deberta": _deberta,
    "deberta-v2": _deberta_v2,
    "modernbert": _modernbert,
    "mobilebert": _mobilebert,
    "xlnet": _xlnet,
    "gpt2": _gpt2,
    "xlm-roberta": _common(transformers.XLMRobertaConfig),
    "camembert": _common(transformers.CamembertConfig),
    "ernie": _common(transformers.ErnieConfig),
}
"""Those with layers of their own first: a limit of time cuts off only those that compute as another does."""
