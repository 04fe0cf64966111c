"""Attention, seen and changed while an encoder runs, under every attention implementation.

    p = softmax(q kᵀ · scale + mask)      o = gate · (p v)      one p and one o for each head

transformers calls attention through a registry. While `attending` holds an encoder, its config names a
function of ours: it computes p itself, shows it to a visitor, uses another p if the visitor returns one, and
multiplies the output of each head by its gate. No code is patched, and at the end the config names the old
function again. MPNet's attention has a position bias and is in no registry: while it is held, its modules
compute by a function of ours as well.
Axes: B texts, H heads, T tokens, D units of a head.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MethodType
from typing import Any, TypeAlias, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import eager_mask

from bermo.encoders.families import family_of, num_layers
from bermo.encoders.layers import layer_modules
from bermo.encoders.structure import ClosedAttention, anatomy_of, structure_of
from bermo.errors import BermoError

NAME = "bermo_attending"


@dataclass(frozen=True, kw_only=True)
class AttentionCall:
    """One layer's attention: its number from 1 on, probabilities (B, H, T, T) and values (B, H, T, D)."""

    layer: int
    probabilities: Tensor
    value: Tensor


Visitor: TypeAlias = Callable[[AttentionCall], Tensor | None]
"""Sees a layer's attention; what it returns, if anything, is used in place of the probabilities."""


@dataclass
class _Hold:
    visitor: Visitor | None
    gates: Tensor | None
    layers: tuple[int, ...]
    """The layers that attend, by number: one without heads is never called."""
    calls: int = 0

    @property
    def layer(self) -> int:
        """The number of the layer that is being called."""
        return self.layers[self.calls - 1]

    handles: list[Any] = field(default_factory=list)


_HELD: WeakKeyDictionary[nn.Module, _Hold] = WeakKeyDictionary()


def can_attend(encoder: PreTrainedModel) -> bool:
    """Tell whether the family's attention can be seen and changed."""
    family = family_of(encoder.config)
    return family.attention.uses_registry or _is_biased(encoder)


def _is_biased(encoder: PreTrainedModel) -> bool:
    anatomy = family_of(encoder.config).anatomy
    return anatomy is not None and anatomy.has_bias_of_heads


def check_attention(encoder: PreTrainedModel) -> None:
    """Refuse a family that has no attention, or one that cannot be reached."""
    anatomy_of(encoder)
    if not can_attend(encoder):
        raise BermoError(
            f"The attention of {encoder.config.model_type} does not go through transformers' registry, so its"
            " heads can be neither seen nor turned off. Use another family for this, or leave attention and"
            " heads out with --measures."
        )


def heads_of_layers(encoder: PreTrainedModel) -> tuple[int, ...]:
    """Return how many heads each layer has, in the order of calls; a shrunk one has fewer, or none."""
    shapes = structure_of(encoder).layers
    depth = num_layers(encoder.config) - 1
    # ALBERT calls a layer several times.
    return tuple(len(shapes[call * len(shapes) // depth].heads) for call in range(depth))


@contextmanager
def attending(
    encoder: PreTrainedModel, visitor: Visitor | None = None, gates: Tensor | None = None
) -> Iterator[None]:
    """Show every layer's attention to `visitor`, and scale head h of layer l by `gates[l − 1, h]`.

    Gates are (layers, heads), or (layers, B, heads) for gates of each text; heads are as many as the layer
    with the most has, and gates of heads that are not there change nothing. Works with gradients; dropout of
    the probabilities is left out, so call it in eval mode.
    """
    check_attention(encoder)
    layers = tuple(number for number, heads in enumerate(heads_of_layers(encoder), start=1) if heads)
    hold = _Hold(visitor, gates, layers)
    modules = list(encoder.modules())
    if any(module in _HELD for module in modules):
        raise BermoError("This encoder's attention is being watched already. End that first.")
    before = encoder.config._attn_implementation

    def restart(module: nn.Module, args: Any, kwargs: Any) -> None:
        hold.calls = 0

    handle = encoder.register_forward_pre_hook(restart, with_kwargs=True)
    for module in modules:
        _HELD[module] = hold
    cores = _cores(encoder) if _is_biased(encoder) else []
    for core in cores:
        cast(Any, core).forward = MethodType(_attend_with_bias, core)
    encoder.config._attn_implementation = NAME
    try:
        yield
    finally:
        encoder.config._attn_implementation = before
        for core in cores:
            del core.forward
        handle.remove()
        for module in modules:
            _HELD.pop(module, None)


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor]:
    """Attention as the registry asks for it: the output (B, T, H, D) and the probabilities."""
    hold = _HELD[module]
    hold.calls += 1
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = query @ key.transpose(-1, -2) * scale
    if attention_mask is not None:
        scores = scores + attention_mask
    probabilities = torch.softmax(scores, dim=-1)
    if hold.visitor is not None:
        call = AttentionCall(layer=hold.layer, probabilities=probabilities, value=value)
        other = hold.visitor(call)
        probabilities = probabilities if other is None else other
    output = probabilities.to(value.dtype) @ value
    if hold.gates is not None:
        gates = hold.gates[hold.layer - 1][..., : output.shape[1]]
        output = output * gates[..., None, None].to(output.dtype)
    return output.transpose(1, 2).contiguous(), probabilities


def _cores(encoder: PreTrainedModel) -> list[nn.Module]:
    """Return the modules that attend; a layer without heads has none."""
    family = family_of(encoder.config)
    core = anatomy_of(encoder).core
    cores = [layer.get_submodule(core) for layer in layer_modules(encoder, family)]
    return [core for core in cores if not isinstance(core, ClosedAttention)]


def _attend_with_bias(
    core: Any,
    hidden_states: Tensor,
    attention_mask: Tensor | None = None,
    position_bias: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """MPNet's attention: q, k, v and o are its own; the bias is one more mask."""
    query, key, value = (
        one(hidden_states).unflatten(-1, (-1, core.attention_head_size)).transpose(1, 2)
        for one in (core.q, core.k, core.v)
    )
    if position_bias is not None:
        attention_mask = position_bias if attention_mask is None else attention_mask + position_bias
    output, probabilities = _attend(core, query, key, value, attention_mask)
    return core.o(output.flatten(-2)), probabilities


AttentionInterface.register(NAME, cast(Callable[..., Any], _attend))
AttentionMaskInterface.register(NAME, eager_mask)
