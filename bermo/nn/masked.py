"""Masks on the parameters of a module: the only file that reaches into torch's parametrizations.

attach_mask_(linear, mask)      from now on linear.weight is mask(W)
original_of(linear)             W itself, which is trained
remove_mask_(linear)            linear.weight becomes mask(W) for good
"""

from typing import cast

from torch import Tensor, nn
from torch.nn.utils import parametrize

INSIDE = ".parametrizations."
"""Part of the name of every parameter and buffer that belongs to a masked parameter."""


def is_masked(module: nn.Module, parameter: str = "weight") -> bool:
    """Tell whether a parameter of a module has a mask."""
    return parametrize.is_parametrized(module, parameter)


def masked_parameters(module: nn.Module) -> list[str]:
    """Return the names of the module's own parameters that have a mask."""
    if not parametrize.is_parametrized(module):
        return []
    return list(cast(nn.ModuleDict, module.parametrizations))


def mask_on(module: nn.Module, parameter: str = "weight") -> nn.Module:
    """Return the mask on a parameter."""
    return cast(nn.ModuleList, _parametrization(module, parameter))[0]


def original_of(module: nn.Module, parameter: str = "weight") -> Tensor:
    """Return a parameter as it is without its mask, whether it has one or not."""
    if not is_masked(module, parameter):
        return cast(Tensor, getattr(module, parameter))
    return cast(Tensor, _parametrization(module, parameter).original)


def attach_mask_(module: nn.Module, mask: nn.Module, parameter: str = "weight") -> None:
    """Put a mask on a parameter."""
    # unsafe: torch would call the mask once to compare shapes and dtypes, which are right by construction.
    parametrize.register_parametrization(module, parameter, mask, unsafe=True)


def remove_mask_(module: nn.Module, parameter: str = "weight") -> None:
    """Take the mask off a parameter, whose value becomes the masked one."""
    # torch edits the module's class to do this, and a deep copy of a model shares its classes with the
    # original.
    known = type(module)
    module.__class__ = type(known.__name__, known.__bases__, dict(vars(known)))
    parametrize.remove_parametrizations(module, parameter, leave_parametrized=True)


def _parametrization(module: nn.Module, parameter: str) -> nn.Module:
    return cast(nn.ModuleDict, module.parametrizations)[parameter]
