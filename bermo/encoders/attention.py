"""Attention, seen and changed while an encoder runs, under every attention implementation.

    p = softmax(q kᵀ · scale + mask)      o = gate · (p v)      one p and one o for each head

transformers calls attention through a registry. While `attending` holds an encoder, its config names a
function of ours: it computes p itself, shows it to a visitor, uses another p if the visitor returns one, and
multiplies the output of each head by its gate. No code is patched, and at the end the config names the old
function again.
Axes: B texts, H heads, T tokens, D units of a head.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import eager_mask

from bermo.encoders.families import family_of, num_layers
from bermo.encoders.structure import structure_of
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


def check_attention(encoder: PreTrainedModel) -> None:
    """Refuse a family whose attention cannot be reached."""
    if not family_of(encoder.config).attention.uses_registry:
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
    encoder.config._attn_implementation = NAME
    try:
        yield
    finally:
        encoder.config._attn_implementation = before
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


AttentionInterface.register(NAME, cast(Callable[..., Any], _attend))
AttentionMaskInterface.register(NAME, eager_mask)
