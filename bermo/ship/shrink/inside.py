"""An encoder of transformers that is part of another model, such as GLiNER's: cut and put back.

    small = copy.deepcopy(model)
    replace_encoder_(small, "token_rep.encoder", cut_encoder(encoder, layers=(1, 3), heads=0.5, neurons=0.5))

The big model then teaches the small one without labels (teach.py).

Heads and neurons that stay are those with the largest weights: ‖what feeds them‖ · ‖what reads them‖. What a
config of transformers cannot say of the shape stands in its field `structure`, and `give_shape_` brings it
back to an encoder that stock code has built from the config.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import nn
from transformers import PreTrainedModel

from bermo.encoders.shape import WIDTHS, LayerShape, Structure
from bermo.encoders.sites import layers_of
from bermo.encoders.structure import anatomy_of, groups_of, keep_units_, resize_
from bermo.errors import BermoError
from bermo.methods.student import best_units, check_layers, copy_layers_, shorten_
from bermo.ship.shrink.plain import leave_out_

M = TypeVar("M", bound=PreTrainedModel)


@torch.no_grad()
def cut_encoder(
    encoder: M, *, layers: Sequence[int] | None = None, heads: float = 1.0, neurons: float = 1.0
) -> M:
    """Return a copy of an encoder with some of its layers (1 = the first) and a share of each layer's heads
    and neurons.

        >>> small = bermo.cut_encoder(bermo.box(), layers=(1, 2, 3), heads=0.5, neurons=0.5)
        >>> small.num_parameters() < bermo.box().num_parameters()
        True
    """
    for name, share in (("heads", heads), ("neurons", neurons)):
        if not 0 < share <= 1:
            raise BermoError(f"{name} must be a share over 0 and at most 1, but got {share}.")
    if getattr(encoder.config, "structure", None) is not None:
        raise BermoError("This encoder was cut already, so its layers differ. Cut the one that it came from.")
    small = copy.deepcopy(encoder) if layers is None else _with_layers(encoder, layers)
    if heads < 1 or neurons < 1:
        _keep_units_(small, {"heads": heads, "neurons": neurons})
    return small.train(encoder.training)


def give_shape_(encoder: PreTrainedModel) -> None:
    """Give an encoder that was built from the config of a cut one its shape, in place; weights come after.

    >>> small = bermo.cut_encoder(bermo.box(), neurons=0.5)
    >>> again = type(small)(small.config, add_pooling_layer=False)
    >>> bermo.give_shape_(again)
    >>> again.load_state_dict(small.state_dict())
    <All keys matched successfully>
    """
    known = getattr(encoder.config, "structure", None)
    if known is not None:
        resize_(encoder, Structure.from_dict(known))


def replace_encoder_(model: nn.Module, path: str, encoder: PreTrainedModel) -> None:
    """Put an encoder at a path of dots inside a model, in place of the one there.

    >>> model = torch.nn.ModuleDict({"encoder": bermo.box()})
    >>> bermo.replace_encoder_(model, "encoder", bermo.cut_encoder(bermo.box(), neurons=0.5))
    """
    try:
        known = model.get_submodule(path)
    except AttributeError:
        names = [name for name, part in model.named_modules() if name and isinstance(part, PreTrainedModel)]
        raise BermoError(
            f'{type(model).__name__} has no part "{path}". Encoders are at: {", ".join(names) or "no place"}.'
        ) from None
    widths = [getattr(getattr(part, "config", None), "hidden_size", None) for part in (known, encoder)]
    if widths[0] != widths[1]:
        raise BermoError(
            f'The part "{path}" has vectors of {widths[0]} units, the new one of {widths[1]}. Cut the encoder'
            " that is there: its width stays."
        )
    model.set_submodule(path, encoder)


def _with_layers(encoder: M, layers: Sequence[int]) -> M:
    config: Any = copy.deepcopy(encoder.config)
    chosen = check_layers(layers, config)
    shorten_(config, chosen)
    small = type(encoder)(config).to(device=encoder.device, dtype=encoder.dtype)  # type: ignore[call-arg]
    leave_out_(small, encoder)
    copy_layers_(small, encoder, chosen)
    inside = {id(tensor) for part in layers_of(small) for tensor in part.state_dict(keep_vars=True).values()}
    known = encoder.state_dict()
    for name, tensor in small.state_dict(keep_vars=True).items():
        if id(tensor) not in inside:
            tensor.copy_(known[name])
    return small


def _keep_units_(encoder: PreTrainedModel, shares: Mapping[str, float]) -> None:
    """Keep a share of the units of every layer, in place, and say so in the config."""
    anatomy, layers, config = anatomy_of(encoder), layers_of(encoder), cast(Any, encoder.config)
    count = {group.kind: group.count for group in groups_of(encoder)}
    width = next((name for name in WIDTHS if getattr(config, name, None) == count.get("neurons")), None)
    shapes = []
    for number, layer in enumerate(layers, start=1):
        groups = [group for group in groups_of(encoder) if group.layer == number]
        best = [best_units(group, shares[group.kind]) for group in groups]
        heads = next(kept for kept, group in zip(best, groups, strict=True) if group.kind == "heads")
        for group, kept in zip(groups, best, strict=True):
            keep_units_(layer, anatomy, group, kept, heads)
        neurons = tuple(len(kept) for kept, g in zip(best, groups, strict=True) if g.kind == "neurons")
        shapes.append(LayerShape(heads=tuple(heads), neurons=neurons))
    if shares["heads"] == 1 and width is not None and len({shape.neurons for shape in shapes}) == 1:
        setattr(config, width, shapes[0].neurons[0])  # stock code can build it
    else:
        config.structure = Structure(layers=tuple(shapes)).to_dict()
