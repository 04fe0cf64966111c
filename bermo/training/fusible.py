"""Which modules of a model fused kernels can compute, known by structure and not by the family's name.

A module with other children, another signature or a hook is not among them and keeps its own forward.
"""

import inspect
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor, nn
from transformers.activations import NewGELUActivation
from transformers.pytorch_utils import Conv1D

from bermo.encoders.families import fused_projections
from bermo.nn.mix import LayerMix
from bermo.nn.stacked import StackedEmbedding, StackedLinear, StackedNorm

PROJECTION_NAMES = fused_projections()
"""How families name the query, key and value layers of an attention module."""


@dataclass(frozen=True)
class PreNorm:
    """The names of what a pre-norm layer is made of, and of the last modules of its two blocks."""

    norms: tuple[str, str]
    blocks: tuple[str, str]
    denses: tuple[str, str]
    dropouts: tuple[str | None, str | None]

    def children(self, layer: nn.Module, names: tuple[str | None, str | None]) -> list[Any]:
        """The modules of these names; None where there is none that computes."""
        found = [None if name is None else layer.get_submodule(name) for name in names]
        return [None if type(module) is nn.Identity else module for module in found]


PRE_NORMS = (
    PreNorm(
        norms=("ln_1", "ln_2"),
        blocks=("attn", "mlp"),
        denses=("attn.c_proj", "mlp.c_proj"),
        dropouts=("attn.resid_dropout", "mlp.dropout"),
    ),
    PreNorm(
        norms=("attn_norm", "mlp_norm"),
        blocks=("attn", "mlp"),
        denses=("attn.Wo", "mlp.Wo"),
        dropouts=("attn.out_drop", None),
    ),
)
"""How pre-norm layers name their parts."""


def pre_norm(module: nn.Module) -> PreNorm | None:
    """Return the names of a layer that is x + attention(norm(x)), then x + feed_forward(norm(x)), no more.

    The first norm may be missing.
    """
    children = {name for name, _ in module.named_children()}
    known = [one for one in PRE_NORMS if children == {*one.norms, *one.blocks}]
    if not known or not {"hidden_states", "attention_mask"} <= {*argument_names(module)}:
        return None
    first, second = (module.get_submodule(name) for name in known[0].norms)
    blocks = {name for name, _ in module.named_modules()}
    ends = [name for name in (*known[0].denses, *known[0].dropouts) if name is not None]
    is_known = (
        type(first) in (nn.LayerNorm, nn.Identity) and type(second) is nn.LayerNorm and blocks >= {*ends}
    )
    return known[0] if is_known and all(map(is_product, known[0].children(module, known[0].denses))) else None


def is_product(module: nn.Module) -> bool:
    """Tell whether a module is a linear layer of one model, as it is or transposed."""
    return isinstance(module, nn.Linear | Conv1D) and not isinstance(module, StackedLinear)


def is_gated(module: nn.Module) -> bool:
    """Tell whether a module is Wo(drop(gelu(a) ⊙ b)) with [a, b] = Wi(x) and the exact gelu, no more."""
    children: dict[str, Any] = dict(module.named_children())
    return (
        children.keys() == {"Wi", "act", "drop", "Wo"}
        and getattr(children["act"], "act", None) is nn.functional.gelu
        and all(isinstance(children[name], nn.Linear) for name in ("Wi", "Wo"))
        and children["Wi"].out_features == 2 * children["Wo"].in_features
        and argument_names(module) == ["hidden_states"]
        and not has_hooks(children["act"])
    )


def is_rotary(module: nn.Module) -> bool:
    """Tell whether a module is attention whose joined queries and keys are rotated, over all tokens."""
    children = dict(module.named_children())
    return (
        children.keys() == {"Wqkv", "Wo", "out_drop"}
        and isinstance(children["Wqkv"], nn.Linear)
        and not getattr(module, "is_causal", True)
        and getattr(module, "head_dim", 1) % 2 == 0
        and argument_names(module) == ["hidden_states", "position_embeddings", "attention_mask", "kwargs"]
    )


def is_residual(module: nn.Module) -> bool:
    """Tell whether a module is LayerNorm(input_tensor + dropout(dense(hidden_states))) and no more."""
    children = dict(module.named_children())
    if children.keys() != {"dense", "dropout", "LayerNorm"}:
        return False
    dense, norm = children["dense"], children["LayerNorm"]
    return (
        isinstance(dense, nn.Linear)
        and dense.bias is not None
        and type(children["dropout"]) is nn.Dropout
        and (_is_norm(norm) or is_norm_in_steps(norm))
        and argument_names(module) == ["hidden_states", "input_tensor"]
        and not any(has_hooks(child) for child in children.values())
    )


def _is_norm(norm: nn.Module) -> bool:
    return (
        type(norm) in (nn.LayerNorm, StackedNorm)
        and norm.bias is not None
        and len(getattr(norm, "normalized_shape", (0,))) == 1
    )


def is_norm_in_steps(module: nn.Module) -> bool:
    """Tell whether a module is a LayerNorm in single operations, as DeBERTa's first version writes it out."""
    return (
        dict(module.named_parameters()).keys() == {"weight", "bias"}
        and isinstance(getattr(module, "variance_epsilon", None), float)
        and argument_names(module) == ["hidden_states"]
        and not has_hooks(module)
    )


class Norm(NamedTuple):
    """What a LayerNorm computes with."""

    weight: Tensor
    bias: Tensor
    eps: float


def norm_of(module: Any) -> Norm:
    """Return the norm behind a sum, by whichever name a module has it."""
    norm = module.LayerNorm if hasattr(module, "LayerNorm") else module.layer_norm
    return Norm(norm.weight, norm.bias, norm.eps if hasattr(norm, "eps") else norm.variance_epsilon)


TABLES = ("word_embeddings", "token_type_embeddings", "position_embeddings")
"""How families name the tables whose rows they add up, in this order."""


def is_embeddings(module: nn.Module) -> bool:
    """Tell whether a module is dropout(LayerNorm(sum of rows of tables)), with no other children."""
    children = dict(module.named_children())
    tables: list[Any] = [children[name] for name in TABLES if name in children]
    return (
        "word_embeddings" in children
        and children.keys() - {*TABLES} == {"LayerNorm", "dropout"}
        and all(map(is_table, tables))
        and len({table.weight.shape[-1] for table in tables}) == 1
        and type(children["dropout"]) is nn.Dropout
        and (_is_norm(children["LayerNorm"]) or is_norm_in_steps(children["LayerNorm"]))
        and not any(has_hooks(child) for child in children.values())
    )


def is_table(module: nn.Module) -> bool:
    """Tell whether a module only looks up the rows of its own table."""
    if type(module) is StackedEmbedding:
        return True
    is_plain = type(module) is nn.Embedding and module.max_norm is None
    return is_plain and not (module.sparse or module.scale_grad_by_freq)


def is_biased_attention(module: nn.Module) -> bool:
    """Tell whether a module is LayerNorm(x + dropout(attn(x, mask, position bias))), as MPNet's is."""
    children = dict(module.named_children())
    if children.keys() != {"attn", "LayerNorm", "dropout"}:
        return False
    attn, norm = children["attn"], children["LayerNorm"]
    inner = dict(attn.named_children())
    linears = [child for name, child in inner.items() if name != "dropout"]
    return (
        inner.keys() == {"q", "k", "v", "o", "dropout"}
        and all(isinstance(linear, nn.Linear) and linear.bias is not None for linear in linears)
        and type(norm) in (nn.LayerNorm, StackedNorm)
        and argument_names(attn)[:3] == ["hidden_states", "attention_mask", "position_bias"]
        and not any(has_hooks(child) for child in (*children.values(), *linears))
    )


def is_gelu(module: nn.Module) -> bool:
    """Tell whether a module is gelu(dense(hidden_states)), with the exact gelu, and no more."""
    children = dict(module.named_children())
    if children.keys() != {"dense", "intermediate_act_fn"}:
        return False
    dense, act = children["dense"], children["intermediate_act_fn"]
    return (
        isinstance(dense, nn.Linear)
        and dense.bias is not None
        and getattr(act, "act", None) is nn.functional.gelu
        and argument_names(module) == ["hidden_states"]
        and not any(has_hooks(child) for child in children.values())
    )


def is_gelu_by_tanh(module: nn.Module) -> bool:
    """Tell whether a module is the gelu by tanh, which transformers writes out in single operations."""
    return isinstance(module, NewGELUActivation)


def attention_projections(module: nn.Module) -> tuple[nn.Linear, nn.Linear, nn.Linear] | None:
    """Return the query, key and value layers of an attention module, if they have one shape and biases."""
    for names in PROJECTION_NAMES:
        children = [getattr(module, name, None) for name in names]
        linears = [child for child in children if isinstance(child, nn.Linear) and child.bias is not None]
        if len(linears) == 3 and len({(p.in_features, p.out_features) for p in linears}) == 1:
            return linears[0], linears[1], linears[2]
    return None


def can_fuse_mix(mix: nn.Module) -> bool:
    """Tell whether the mixing kernels compute this mix."""
    return type(mix) is LayerMix and mix.norm in ("across", "within", None) and not has_hooks(mix)


def has_hooks(module: nn.Module) -> bool:
    """Tell whether anything observes this module's forward or backward pass."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
    )


def argument_names(module: nn.Module) -> list[str]:
    """Return how a module's forward names its arguments."""
    return list(inspect.signature(type(module).forward).parameters)[1:]
