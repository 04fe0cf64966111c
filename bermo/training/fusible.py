"""Which modules of a model fused kernels can compute, known by structure and not by the family's name.

A module with other children, another signature or a hook is not among them and keeps its own forward.
"""

import inspect
from typing import Any, NamedTuple

from torch import Tensor, nn
from transformers.activations import NewGELUActivation

from bermo.encoders.families import fused_projections
from bermo.nn.mix import LayerMix
from bermo.nn.stacked import StackedNorm

PROJECTION_NAMES = fused_projections()
"""How families name the query, key and value layers of an attention module."""


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
