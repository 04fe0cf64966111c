"""Layers that share their weights, as ALBERT's do (Lan et al. 2020): groups of neighbours, one set each.

    layers 1 … L in N groups of L/N:  every layer of a group has the parameters of the group's first

The number of groups stands in the encoder's own config, so that a saved model has each set once.
"""

from typing import cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from bermo.encoders.backbone import layer_modules
from bermo.encoders.families import family_of
from bermo.errors import BermoError

FIELD = "tied_layers"
"""The field of an encoder's config: how many groups there are."""


def num_groups(encoder: PreTrainedModel) -> int | None:
    """Return into how many groups an encoder's layers are tied; None where each has its own weights."""
    return cast(int | None, getattr(encoder.config, FIELD, None))


def shares_layers(encoder: PreTrainedModel) -> bool:
    """Tell whether layers of an encoder share their weights: tied ones, or ALBERT's."""
    return num_groups(encoder) is not None or "*" in family_of(encoder.config).layers.path


def tied_names(encoder: PreTrainedModel) -> dict[str, str]:
    """Name each parameter of a layer that is another layer's, with the one that it is."""
    groups = num_groups(encoder)
    if groups is None:
        return {}
    layers = layer_modules(encoder, family_of(encoder.config))
    paths = {id(module): path for path, module in encoder.named_modules()}
    size = len(layers) // groups
    return {
        f"{paths[id(layer)]}.{name}": f"{paths[id(layers[index - index % size])]}.{name}"
        for index, layer in enumerate(layers)
        if index % size
        for name in parameters_in(layer)
    }


def note_tied_(model: PreTrainedModel, encoder: PreTrainedModel) -> None:
    """Tell transformers which layers of a model's `backbone` share their weights, if some do."""
    if tied := tied_names(encoder):
        model._tied_weights_keys = {f"backbone.{name}": f"backbone.{first}" for name, first in tied.items()}


def parameters_in(layer: nn.Module) -> dict[str, nn.Parameter]:
    """Return a layer's parameters by name, those too that another layer has."""
    return dict(layer.named_parameters(remove_duplicate=False))


def check_groups(num_layers: int, groups: int) -> None:
    """Refuse groups of unequal size."""
    if num_layers % groups:
        fitting = [str(number) for number in range(1, num_layers + 1) if num_layers % number == 0]
        raise BermoError(
            f"tie-layers must divide the {num_layers} layers into groups of equal size, but got {groups}."
            f" Give one of {', '.join(fitting)}."
        )


@torch.no_grad()
def share_layers_(encoder: PreTrainedModel, groups: int) -> None:
    """Give the first layer of each group the mean of the group's weights, and record the groups; whoever
    holds the encoder lets the other layers have the parameters of the first (`tied_names`).
    """
    layers = layer_modules(encoder, family_of(encoder.config))
    _check_alike(encoder, layers)
    check_groups(len(layers), groups)
    size = len(layers) // groups
    for start in range(0, len(layers), size):
        members = [parameters_in(layer) for layer in layers[start : start + size]]
        for name, parameter in members[0].items():
            parameter.copy_(torch.stack([member[name] for member in members]).mean(0))
    setattr(encoder.config, FIELD, groups)


def _check_alike(encoder: PreTrainedModel, layers: list[nn.Module]) -> None:
    """Refuse layers that share their weights already, differ in shape, or store matrices the other way."""
    name = encoder.config.model_type
    if shares_layers(encoder):
        raise BermoError(f"The layers of this {name} share their weights already. Leave --tie-layers out.")
    shapes = [{key: tuple(cast(Tensor, p).shape) for key, p in parameters_in(one).items()} for one in layers]
    is_odd = any(isinstance(module, Conv1D) for layer in layers for module in layer.modules())
    if is_odd or any(shape != shapes[0] for shape in shapes):
        raise BermoError(f"The layers of this {name} are not of one shape, so they cannot be tied.")
