"""Where each family keeps its heads and its neurons inside a layer: the facts behind `bermo.encoders.structure`."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Inner:
    """Where a layer keeps one kind of unit: matrices that feed them, and the matrix that reads them."""

    inputs: tuple[str, ...]
    output: str
    parts: int = 1
    """Queries, keys and values (or input and gate) stand in one matrix: so many parts."""
    is_woven: bool = False
    """The parts of one unit stand together, unit by unit."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where a family keeps its heads and neurons."""

    core: str
    """The module that attends."""
    heads: Inner
    neurons: tuple[Inner, ...]
    """In the order in which they compute."""
    head_size: str = "attention_head_size"
    counts: tuple[str, ...] = ("num_attention_heads",)
    widths: tuple[str, ...] = ("all_head_size",)
    """Attributes of the core that hold the number of heads, and heads × size."""
    vectors: tuple[str, ...] = ()
    """Bare parameters of the core, one part a head, that are not pruned."""
    norm: str | None = None
    """The core adds its input and normalises by itself."""
    has_bias_of_heads: bool = False
    """The encoder computes one position bias a head, for all layers together."""
    final_norm: str | None = None


def _in(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{folder}.{name}" for name in names)


_DENSE = Inner(inputs=("intermediate.dense",), output="output.dense")
_BERT = Places(
    core="attention.self",
    heads=Inner(inputs=_in("attention.self", "query", "key", "value"), output="attention.output.dense"),
    neurons=(_DENSE,),
)
PLACES: Mapping[str, Places] = {
    **dict.fromkeys(("bert", "ernie", "roberta", "xlm-roberta", "camembert", "electra"), _BERT),
    "mobilebert": Places(
        core=_BERT.core,
        heads=_BERT.heads,
        neurons=(
            Inner(inputs=("ffn.*.intermediate.dense",), output="ffn.*.output.dense"),
            _DENSE,
        ),
    ),
    "distilbert": Places(
        core="attention",
        heads=Inner(inputs=_in("attention", "q_lin", "k_lin", "v_lin"), output="attention.out_lin"),
        neurons=(Inner(inputs=("ffn.lin1",), output="ffn.lin2"),),
        counts=("n_heads",),
        widths=(),
    ),
    "albert": Places(
        core="attention",
        heads=Inner(inputs=_in("attention", "query", "key", "value"), output="attention.dense"),
        neurons=(Inner(inputs=("ffn",), output="ffn_output"),),
        norm="attention.LayerNorm",
    ),
    "mpnet": Places(
        core="attention.attn",
        heads=Inner(inputs=_in("attention.attn", "q", "k", "v"), output="attention.attn.o"),
        neurons=(_DENSE,),
        has_bias_of_heads=True,
    ),
    "deberta": Places(
        core="attention.self",
        heads=Inner(
            inputs=_in("attention.self", "in_proj", "pos_proj", "pos_q_proj"),
            output="attention.output.dense",
            is_woven=True,
        ),
        neurons=(_DENSE,),
        vectors=("q_bias", "v_bias"),
    ),
    "deberta-v2": Places(
        core="attention.self",
        heads=Inner(
            inputs=_in(
                "attention.self",
                "query_proj",
                "key_proj",
                "value_proj",
                "pos_key_proj",
                "pos_query_proj",
            ),
            output="attention.output.dense",
        ),
        neurons=(_DENSE,),
    ),
    "modernbert": Places(
        core="attn",
        heads=Inner(inputs=("attn.Wqkv",), output="attn.Wo", parts=3),
        neurons=(Inner(inputs=("mlp.Wi",), output="mlp.Wo", parts=2),),
        head_size="head_dim",
        counts=(),
        widths=(),
        final_norm="final_norm",
    ),
    "gpt2": Places(
        core="attn",
        heads=Inner(inputs=("attn.c_attn",), output="attn.c_proj", parts=3),
        neurons=(Inner(inputs=("mlp.c_fc",), output="mlp.c_proj"),),
        head_size="head_dim",
        counts=("num_heads",),
        widths=("split_size",),
        final_norm="ln_f",
    ),
    "xlnet": Places(
        core="rel_attn",
        heads=Inner(inputs=_in("rel_attn", "q", "k", "v"), output="rel_attn.o"),
        neurons=(Inner(inputs=("ff.layer_1",), output="ff.layer_2"),),
        head_size="d_head",
        counts=("n_head",),
        widths=(),
        vectors=("r", "r_r_bias", "r_s_bias", "r_w_bias", "seg_embed"),
    ),
}
