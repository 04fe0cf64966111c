"""Where an encoder's layers are, and an inner mix: each layer reads a mix of all layers below it.

The mix is a module of the encoder, `encoder.inner_mix`, and hooks on the input of each layer; no model code
is copied.
"""

from functools import partial
from typing import Any

import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from bermo.encoders.families import num_layers
from bermo.encoders.family import Family
from bermo.errors import BermoError
from bermo.nn.inner import InnerMix


def layer_modules(encoder: nn.Module, family: Family) -> list[nn.Module]:
    """Return the distinct modules whose inputs are h_0 … h_{L−1}."""
    modules: list[nn.Module] = [encoder]
    for name in family.layers.path.split("."):
        modules = [
            child
            for module in modules
            for child in (module.children() if name == "*" else [module.get_submodule(name)])
        ]
    return [layer for module in modules for layer in module.children()]


def is_mixed_inside(config: PretrainedConfig) -> bool:
    """Tell whether a bermo model is a bare encoder with an inner mix: no mix of its outputs, no head."""
    return (
        config.model_type == "bermo"
        and config.architectures == ["BermoModel"]
        and config.mix["kind"] == "none"
        and getattr(config.backbone, "inner_mix", "none") != "none"
    )


def mix_inside_(encoder: PreTrainedModel, family: Family) -> None:
    """Let each layer read a mix of all layers below it: `encoder.inner_mix`, by hooks on a layer's input."""
    modules = layer_modules(encoder, family)
    if len(modules) != num_layers(encoder.config) - 1 or family.layers.is_time_first:
        raise BermoError(
            f"An inner mix needs a module for each layer, which {encoder.config.model_type} does not have."
            " Choose another family, or no inner mix."
        )
    inner = InnerMix(len(modules), encoder.config.inner_mix)
    encoder.add_module("inner_mix", inner)
    for index, module in enumerate(modules):
        # deepcopy copies a partial of plain values with the module; a closure would stay on the old one.
        module.register_forward_pre_hook(partial(_read_mix, inner, index), with_kwargs=True)


def drop_layers_(encoder: PreTrainedModel, family: Family, share: float) -> None:
    """Leave each layer out of a training step with this probability, by hooks (LayerDrop, Fan et al. 2019).

    A layer that is left out hands its input on. It is computed all the same: what is saved is nothing, what
    is learned are layers that do without their neighbours.
    """
    for module in layer_modules(encoder, family):
        module.register_forward_hook(partial(_drop, share, family.layers.num_streams), with_kwargs=True)


def _drop(
    share: float,
    num_streams: int,
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    output: Any,
) -> Any:
    if not module.training:
        return output
    before = args[:num_streams] or (kwargs["hidden_states"],)
    is_kept = torch.rand((), device=before[0].device) >= share
    if not isinstance(output, tuple):
        return torch.where(is_kept, output, before[0])
    streams = [
        None if old is None else torch.where(is_kept, new, old)
        for new, old in zip(output, before, strict=False)
    ]
    return (*streams, *output[num_streams:])


def _read_mix(
    inner: InnerMix, index: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if args:
        return (inner.read(index, args[0]), *args[1:]), kwargs
    return args, {**kwargs, "hidden_states": inner.read(index, kwargs["hidden_states"])}
