"""The table of families: one entry for each family of encoders, with every fact that bermo must know of it.

A new family is a new entry, a tiny config of it in tests/tiny.py, and nothing else:
tests/encoders/test_families.py checks every fact of every entry against a tiny random model.
"""

from collections.abc import Mapping

from transformers import PretrainedConfig

from bermo.encoders.elmo import ElmoConfig
from bermo.encoders.family import (
    Anatomy,
    Attention,
    Export,
    Family,
    Inputs,
    Layers,
    MaskedHeadPaths,
    Projections,
    Units,
)
from bermo.errors import BermoError


def _in(module: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{module}.{name}" for name in names)


_BERT_QKV = _in("attention.self", "query", "key", "value")
_BERT_NEURONS = Units(inputs=("intermediate.dense",), output="output.dense")
_BERT_ANATOMY = Anatomy(
    core="attention.self",
    heads=Units(inputs=_BERT_QKV, output="attention.output.dense"),
    neurons=(_BERT_NEURONS,),
)
_BERT_HEAD = MaskedHeadPaths(
    dense="cls.predictions.transform.dense",
    norm="cls.predictions.transform.LayerNorm",
    bias="cls.predictions.bias",
)
_ROBERTA_HEAD = MaskedHeadPaths(dense="lm_head.dense", norm="lm_head.layer_norm", bias="lm_head.bias")
_BERT = Family(
    anatomy=_BERT_ANATOMY,
    projections=Projections(paths=_BERT_QKV),
    masked_head=_BERT_HEAD,
    export=Export(can_cut_top=True),
)
_ROBERTA = Family(
    inputs=Inputs(first_position=None),
    anatomy=_BERT_ANATOMY,
    projections=Projections(paths=_BERT_QKV),
    masked_head=_ROBERTA_HEAD,
    export=Export(can_cut_top=True),
)
_ELECTRA = Family(
    anatomy=_BERT_ANATOMY,
    projections=Projections(paths=_BERT_QKV),
    masked_head=MaskedHeadPaths(
        dense="generator_predictions.dense",
        norm="generator_predictions.LayerNorm",
        bias="generator_lm_head.bias",
    ),
    export=Export(can_cut_top=True),
)
_MPNET_QKV = _in("attention.attn", "q", "k", "v")
_MPNET = Family(
    # Its code takes 1 for the id of the padding token, whatever the config says.
    inputs=Inputs(has_segments=False, first_position=2),
    attention=Attention(uses_registry=False),
    anatomy=Anatomy(
        core="attention.attn",
        heads=Units(inputs=_MPNET_QKV, output="attention.attn.o"),
        neurons=(_BERT_NEURONS,),
        has_bias_of_heads=True,
    ),
    projections=Projections(paths=_MPNET_QKV),
    masked_head=_ROBERTA_HEAD,
)
_DISTILBERT_QKV = _in("attention", "q_lin", "k_lin", "v_lin")
_DISTILBERT = Family(
    layers=Layers(path="transformer.layer"),
    inputs=Inputs(has_segments=False),
    anatomy=Anatomy(
        core="attention",
        heads=Units(inputs=_DISTILBERT_QKV, output="attention.out_lin"),
        neurons=(Units(inputs=("ffn.lin1",), output="ffn.lin2"),),
        head_counts=("n_heads",),
        widths=(),
    ),
    projections=Projections(paths=_DISTILBERT_QKV),
    masked_head=MaskedHeadPaths(
        dense="vocab_transform", norm="vocab_layer_norm", bias="vocab_projector.bias"
    ),
)
_ALBERT_QKV = _in("attention", "query", "key", "value")
_ALBERT = Family(
    layers=Layers(path="encoder.albert_layer_groups.*.albert_layers"),
    anatomy=Anatomy(
        core="attention",
        heads=Units(inputs=_ALBERT_QKV, output="attention.dense"),
        neurons=(Units(inputs=("ffn",), output="ffn_output"),),
        norm="attention.LayerNorm",
    ),
    projections=Projections(paths=_ALBERT_QKV),
    masked_head=MaskedHeadPaths(
        dense="predictions.dense", norm="predictions.LayerNorm", bias="predictions.bias"
    ),
)
_DEBERTA = Family(
    layers=Layers(collector="encoder"),
    attention=Attention(uses_registry=False, reads_whole_table=True),
    anatomy=Anatomy(
        core="attention.self",
        heads=Units(
            inputs=_in("attention.self", "in_proj", "pos_proj", "pos_q_proj"),
            output="attention.output.dense",
            is_interleaved=True,
        ),
        neurons=(_BERT_NEURONS,),
        head_vectors=("q_bias", "v_bias"),
    ),
    masked_head=_BERT_HEAD,
)
_DEBERTA_V2_QKV = _in("attention.self", "query_proj", "key_proj", "value_proj")
_DEBERTA_V2 = Family(
    layers=Layers(collector="encoder"),
    attention=Attention(uses_registry=False, reads_whole_table=True),
    anatomy=Anatomy(
        core="attention.self",
        heads=Units(
            inputs=(*_DEBERTA_V2_QKV, *_in("attention.self", "pos_key_proj", "pos_query_proj")),
            output="attention.output.dense",
        ),
        neurons=(_BERT_NEURONS,),
    ),
    # Queries and keys of the relative positions come from the same matrices, in calls of their own.
    projections=Projections(paths=_DEBERTA_V2_QKV, are_fused=False),
    masked_head=_BERT_HEAD,
)
_MODERNBERT = Family(
    layers=Layers(path="layers"),
    inputs=Inputs(has_segments=False, has_last_position=False),
    attention=Attention(implementation="sdpa"),
    anatomy=Anatomy(
        core="attn",
        heads=Units(inputs=("attn.Wqkv",), output="attn.Wo", parts=3),
        neurons=(Units(inputs=("mlp.Wi",), output="mlp.Wo", parts=2),),
        head_size="head_dim",
        head_counts=(),
        widths=(),
        final_norm="final_norm",
    ),
    projections=Projections(paths=("attn.Wqkv",), are_fused=False),
    masked_head=MaskedHeadPaths(dense="head.dense", norm="head.norm", bias="decoder.bias"),
    # The rotary node of opset 23 wants its angles in another shape than torch gives.
    export=Export(opset=18),
)
_MOBILEBERT = Family(
    inputs=Inputs(reads_neighbours=True),
    anatomy=Anatomy(
        core="attention.self",
        heads=_BERT_ANATOMY.heads,
        neurons=(
            Units(inputs=("ffn.*.intermediate.dense",), output="ffn.*.output.dense"),
            _BERT_NEURONS,
        ),
    ),
    # The values come from a wider tensor than queries and keys.
    projections=Projections(paths=_BERT_QKV, are_fused=False),
)
_XLNET = Family(
    pooling="last",
    layers=Layers(path="layer", embeddings=("word_embedding",), is_time_first=True, num_streams=2),
    inputs=Inputs(has_float_mask=True, has_last_position=False, options={"use_mems": False}),
    attention=Attention(uses_registry=False),
    anatomy=Anatomy(
        core="rel_attn",
        heads=Units(inputs=_in("rel_attn", "q", "k", "v"), output="rel_attn.o"),
        neurons=(Units(inputs=("ff.layer_1",), output="ff.layer_2"),),
        head_size="d_head",
        head_counts=("n_head",),
        widths=(),
        head_vectors=("r", "r_r_bias", "r_s_bias", "r_w_bias", "seg_embed"),
    ),
    bare_matrices=_in("rel_attn", "q", "k", "v", "o"),
)
_GPT2 = Family(
    pooling="last",
    layers=Layers(path="h", embeddings=("wte", "wpe")),
    inputs=Inputs(has_segments=False, is_decoder=True, options={"use_cache": False}),
    anatomy=Anatomy(
        core="attn",
        heads=Units(inputs=("attn.c_attn",), output="attn.c_proj", parts=3),
        neurons=(Units(inputs=("mlp.c_fc",), output="mlp.c_proj"),),
        head_size="head_dim",
        head_counts=("num_heads",),
        widths=("split_size",),
        final_norm="ln_f",
    ),
    projections=Projections(paths=("attn.c_attn",), are_fused=False),
)
_ELMO = Family(
    # The first token has read the text backwards only, the last one forwards only.
    pooling="mean",
    layers=Layers(path="layers", embeddings=("words",)),
    inputs=Inputs(has_segments=False, has_last_position=False),
    attention=Attention(uses_registry=False),
    anatomy=None,
)
FAMILIES: Mapping[str, Family] = {
    "bert": _BERT,
    "ernie": _BERT,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "electra": _ELECTRA,
    "mpnet": _MPNET,
    "distilbert": _DISTILBERT,
    "albert": _ALBERT,
    "deberta": _DEBERTA,
    "deberta-v2": _DEBERTA_V2,
    "modernbert": _MODERNBERT,
    "mobilebert": _MOBILEBERT,
    "xlnet": _XLNET,
    "gpt2": _GPT2,
    ElmoConfig.model_type: _ELMO,
}


def family_of(config: PretrainedConfig) -> Family:
    """Return the facts of the config's family, or refuse it with a list of the families there are."""
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
    return family_of(config).inputs.has_segments and getattr(config, "type_vocab_size", 2) > 1


def first_position(config: PretrainedConfig) -> int:
    """Return the position of a text's first token; the token ids below it must not change."""
    known = family_of(config).inputs.first_position
    if known is not None:
        return known
    return 0 if config.pad_token_id is None else int(config.pad_token_id) + 1


def longest_input(config: PretrainedConfig) -> int | None:
    """Return how many tokens the encoder has positions for; None where positions are relative alone."""
    # DeBERTa says by this whether it adds learned positions to its relative ones.
    has_positions = getattr(config, "position_biased_input", True)
    if not (family_of(config).inputs.has_last_position and has_positions):
        return None
    return int(config.max_position_embeddings) - first_position(config)


def fused_projections() -> list[tuple[str, ...]]:
    """Return how each family names the three layers of its attention module that training fuses."""
    fused = [p.paths for family in FAMILIES.values() if (p := family.projections) is not None and p.are_fused]
    return list(dict.fromkeys(tuple(path.rpartition(".")[2] for path in paths) for paths in fused))
