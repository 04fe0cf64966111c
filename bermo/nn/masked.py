"""Masks on the parameters of a module: the only file that reaches into torch's parametrizations.

attach_mask_(linear, mask)      from now on linear.weight is mask(W)
original_of(linear)             W itself, which is trained
remove_mask_(linear)            linear.weight becomes mask(W) for good

The state of a masked module holds mask(W), as evaluation uses it, under the parameter's own name, beside W,
the mask and its scores. So a checkpoint that was written before `remove_mask_` loads into a masked model to
go on training, and into a model without masks as what the masked one computes.
"""

from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from bermo.errors import BermoError
from bermo.nn.lora import LowRankUpdate
from bermo.nn.masks import HardConcrete, ScoreMask, TopMask
from bermo.nn.mixout import Mixout
from bermo.nn.quantizers import WeightQuantizer
from bermo.nn.unit_masks import Follower

MASKS = (TopMask, ScoreMask, HardConcrete, Follower, WeightQuantizer, Mixout, LowRankUpdate)
"""What stands on a weight while it is trained; the model is saved without it."""
INSIDE = ".parametrizations."
"""Part of the name of every parameter and buffer that belongs to a masked parameter."""
T = TypeVar("T")


def is_masked(module: nn.Module, parameter: str = "weight") -> bool:
    """Tell whether a parameter of a module has a mask."""
    return parametrize.is_parametrized(module, parameter)


def masked_parameters(module: nn.Module) -> list[str]:
    """Return the names of the module's own parameters that have a mask; other parametrizations are none."""
    if not parametrize.is_parametrized(module):
        return []
    known = cast(nn.ModuleDict, module.parametrizations)
    return [name for name in known if isinstance(mask_on(module, name), MASKS)]


def mask_on(module: nn.Module, parameter: str = "weight") -> nn.Module:
    """Return the mask on a parameter."""
    return cast(nn.ModuleList, _parametrization(module, parameter))[0]


def original_of(module: nn.Module, parameter: str = "weight") -> Tensor:
    """Return a parameter as it is without its mask, whether it has one or not."""
    if not is_masked(module, parameter):
        return cast(Tensor, getattr(module, parameter))
    return cast(Tensor, _parametrization(module, parameter).original)


def originals_of(model: nn.Module) -> list[Tensor]:
    """Return all parameters of a model that have a mask, as they are without it."""
    return [original_of(module, name) for module in model.modules() for name in masked_parameters(module)]


def scores_of(model: nn.Module) -> list[nn.Parameter]:
    """Return the learned scores of all masks in a model."""
    return [
        parameter
        for name, parameter in model.named_parameters()
        if INSIDE in name and name.endswith(".scores")
    ]


def beside_weights(model: nn.Module) -> list[nn.Parameter]:
    """Return what is learned beside the weights and not saved with them: scores, and updates of low rank."""
    return [
        parameter
        for name, parameter in model.named_parameters()
        if INSIDE in name and not name.endswith(".original")
    ]


def attach_mask_(module: nn.Module, mask: nn.Module, parameter: str = "weight") -> None:
    """Put a mask on a parameter."""
    # unsafe: torch would call the mask once to compare shapes and dtypes, which are right by construction.
    parametrize.register_parametrization(module, parameter, mask, unsafe=True)
    module.register_state_dict_post_hook(_add_masked)
    module.register_load_state_dict_pre_hook(_drop_masked)


def remove_mask_(module: nn.Module, parameter: str = "weight") -> None:
    """Take the mask off a parameter, whose value becomes the masked one."""
    # torch edits the module's class to do this, and a deep copy of a model shares its classes with the
    # original.
    known = type(module)
    module.__class__ = type(known.__name__, known.__bases__, dict(vars(known)))
    parametrize.remove_parametrizations(module, parameter, leave_parametrized=True)


def without_masks(state: dict[str, T]) -> dict[str, T]:
    """Return the state of a model as it is when all masks are taken off, from its state with masks."""
    return {name: value for name, value in state.items() if _masked_name(name) not in state}


def _masked_name(name: str) -> str | None:
    """Return the name of the masked parameter that a part of a state belongs to, if it belongs to one."""
    module, inside, rest = f".{name}".rpartition(INSIDE)
    return f"{module}.{rest.split('.')[0]}"[1:] if inside else None


@torch.no_grad()
def _add_masked(module: nn.Module, state: dict[str, Any], prefix: str, _: object) -> None:
    """Write the masked parameters into the state of a module; one without masks has none."""
    for name in masked_parameters(module):
        mask = mask_on(module, name)
        was_training = mask.training
        # Evaluation's mask has no noise.
        mask.eval()
        state[prefix + name] = getattr(module, name).detach()
        mask.train(was_training)


def _drop_masked(module: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
    """Leave the masked parameters of a state out where it holds the originals too; else refuse it."""
    for name in masked_parameters(module):
        is_there = state.pop(prefix + name, None) is not None
        if is_there and f"{prefix}{INSIDE[1:]}{name}.original" not in state:
            raise BermoError(
                f"{prefix}{name} has a mask in this model, but none in the weights that are loaded."
                " Load them before the masks are attached, or call bermo.fold_(model) first."
            )


def _parametrization(module: nn.Module, parameter: str) -> nn.Module:
    return cast(nn.ModuleDict, module.parametrizations)[parameter]
