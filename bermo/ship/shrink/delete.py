"""Shrinking: what a model no longer uses is deleted for real, and its logits stay.

    dead unit       a head or neuron whose columns of the reading matrix are all zero
    unread layer    a top layer that the mix does not read, or reads with next to no share

Heads, neurons and layers outside `mix.layers` leave the outputs as they were, up to the rounding of shorter
sums. A top layer with a small share is another matter: the output moves by about that share, so READ_SHARE is
set below the rounding of bfloat16 (2⁻⁹ of a value), at which these models are commonly served.
"""

import copy
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import torch
from torch import nn
from transformers import PreTrainedModel

from bermo.encoders.families import family_of, num_layers
from bermo.encoders.sites import encoder_of, layers_of
from bermo.encoders.structure import (
    Group,
    anatomy_of,
    groups_of,
    keep_units_,
    remove_final_norm_,
    structure_of,
)
from bermo.errors import BermoError
from bermo.models.config import BermoConfig
from bermo.models.encoder import BermoPreTrainedModel
from bermo.nn.mix import GateMix, LayerMix, build_mix
from bermo.pruning.fold import has_masks
from bermo.ship.shrink.constants import constant_units, fold_constants_
from bermo.ship.shrink.spec import READ_SHARE

Model = TypeVar("Model", bound=BermoPreTrainedModel)


@dataclass(frozen=True, kw_only=True)
class ModelSize:
    """How large a model is."""

    parameters: int
    megabytes: float
    layers: int
    heads: int
    neurons: int
    vocabulary: int


@torch.no_grad()
def size_of(model: PreTrainedModel) -> ModelSize:
    """Count parameters, bytes, layers, heads, neurons and words of a model."""
    parameters = list(model.parameters())
    groups = groups_of(model)
    layers = [groups_in(groups, number) for number in range(1, len(layers_of(model)) + 1)]
    repeats = (num_layers(encoder_of(model).config) - 1) // len(layers)
    return ModelSize(
        parameters=sum(p.numel() for p in parameters),
        megabytes=sum(p.numel() * p.element_size() for p in parameters) / 1e6,
        # A layer without heads and neurons is its norms and biases.
        layers=repeats * sum(bool(layer) for layer in layers),
        heads=repeats * sum(g.count for g in groups if g.kind == "heads"),
        neurons=repeats * sum(g.count for g in groups if g.kind == "neurons"),
        vocabulary=cast(nn.Embedding, model.get_input_embeddings()).num_embeddings,
    )


def groups_in(groups: list[Group], layer: int) -> list[Group]:
    """Return the groups of one layer."""
    return [group for group in groups if group.layer == layer]


def living_units(group: Group) -> list[int]:
    """Return the units of a group that something is read from."""
    columns = group.units_of_output(group.output.weight.detach())
    return torch.nonzero(columns.any(dim=1)).flatten().tolist()


def is_shrinkable(model: BermoPreTrainedModel, read_share: float = READ_SHARE) -> bool:
    """Tell whether a head, a neuron or a top layer can go."""
    dead = any(
        len(living_units(group)) < group.count or bool(constant_units(model, group).any())
        for group in groups_of(model)
    )
    return dead or top_layer(model, read_share) < num_layers(encoder_of(model).config) - 1


def shrink(model: Model, read_share: float = READ_SHARE) -> Model:
    """Return a smaller copy of a model: dead heads and neurons and unread top layers are gone.

    >>> model = bermo.BermoForSequenceClassification.from_backbone("box", mix="none")
    >>> bermo.shrink(model).num_parameters() == model.num_parameters()  # nothing is dead in it
    True
    """
    if has_masks(model):
        raise BermoError("This model still has masks. Call bermo.fold_(model) first.")
    small = copy.deepcopy(model)
    fold_constants_(small)
    cut_unread_(small, read_share)
    _delete_units_(small)
    return small


def cut_unread_(model: BermoPreTrainedModel, read_share: float = READ_SHARE) -> None:
    """Remove the top layers that the mix does not read, in place."""
    top = top_layer(model, read_share)
    if top < num_layers(encoder_of(model).config) - 1:
        _cut_top_(model, top)


@torch.no_grad()
def _delete_units_(model: BermoPreTrainedModel) -> None:
    anatomy, known = anatomy_of(model), structure_of(model)
    groups, shapes = groups_of(model), []
    for number, (layer, shape) in enumerate(zip(layers_of(model), known.layers, strict=True), start=1):
        heads, neurons = shape.heads, [0] * len(shape.neurons)
        rest = iter(index for index, n in enumerate(shape.neurons) if n)
        for group in groups_in(groups, number):
            units = living_units(group)
            if group.kind == "heads":
                heads = tuple(shape.heads[unit] for unit in units)
            else:
                neurons[next(rest)] = len(units)
            keep_units_(layer, anatomy, group, units, heads)
        shapes.append(replace(shape, heads=heads, neurons=tuple(neurons)))
    _config(model).structure = replace(known, layers=tuple(shapes)).to_dict()


def top_layer(model: BermoPreTrainedModel, read_share: float = READ_SHARE) -> int:
    """Return the highest layer that must stay: the mix reads no more than `read_share` from all above it.

    With norm="across" every mixed layer is in the mean that is taken off, whatever its share; the shares of a
    GateMix are the text's; so of these two only layers outside the mix are unread.
    """
    mix = model.mix
    last = num_layers(encoder_of(model).config) - 1
    if _repeats_several(model):
        return last
    top = max(mix.layers)
    if isinstance(mix, LayerMix) and mix.norm != "across":
        shares = mix.weights.tolist()
        above = 0.0
        for layer, share in sorted(zip(mix.layers, shares, strict=True), reverse=True):
            above += share
            if above > read_share:
                return max(layer, 1)
    return max(top, 1)


def _repeats_several(model: BermoPreTrainedModel) -> bool:
    """Tell whether the encoder calls several layers in turn, so the last calls are not the last modules."""
    config = encoder_of(model).config
    groups = getattr(config, "num_hidden_groups", 1) * getattr(config, "inner_group_num", 1)
    return groups > 1


@torch.no_grad()
def _cut_top_(model: BermoPreTrainedModel, top: int) -> None:
    """Remove all layers above `top`, in place, and let the mix read what is left."""
    encoder, config = encoder_of(model), _config(model)
    known = structure_of(model)
    modules = layers_of(model)
    # ALBERT's one layer is only called less often.
    if len(modules) > 1:
        container = cast(nn.ModuleList, encoder.get_submodule(family_of(encoder.config).layers.path))
        del container[top:]
        known = replace(known, layers=known.layers[:top])
    kinds = getattr(encoder.config, "layer_types", None)
    if kinds is not None:
        encoder.config.layer_types = list(kinds[:top])
    encoder.config.num_hidden_layers = top
    if anatomy_of(model).final_norm is not None:
        # The layers below the last are mixed as they are; the norm belonged to the last one.
        remove_final_norm_(encoder)
        known = replace(known, has_final_norm=False)
    config.structure = known.to_dict()
    if config.kept_tokens is not None:
        config.kept_tokens = config.kept_tokens[:top]
    _cut_mix_(model, top)


def _cut_mix_(model: BermoPreTrainedModel, top: int) -> None:
    """Give the model a mix over the layers that are left, with the shares that it had."""
    old, config = model.mix, _config(model)
    assert not isinstance(old, GateMix), "its layers are all read"
    options: dict[str, Any] = dict(config.mix)
    kept = [index for index, layer in enumerate(old.layers) if layer <= top]
    if isinstance(old, LayerMix):
        options["layers"] = [old.layers[index] for index in kept]
        if options["kind"] == "sum-last-four":
            options["kind"] = "raw"
    elif len(old.layers) == 1:
        options["kind"] = "none"
    new = build_mix(num_layers=top + 1, **options).to(model.device, model.dtype)
    if isinstance(old, LayerMix) and isinstance(new, LayerMix):
        shares = old.weights[kept]
        # Shares sum to 1, so what the lost layers had goes into the scale: the others weigh what they
        # weighed.
        new.logits.copy_(shares.log()[None])
        new.scale.copy_(old.scale * shares.sum())
    model.core.layer_mix = new.train(old.training)
    config.mix = options


def _config(model: BermoPreTrainedModel) -> BermoConfig:
    return cast(BermoConfig, model.config)
