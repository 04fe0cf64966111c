"""Masks written into the weights as zeros and taken off, and what is left of a model counted."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from transformers import PreTrainedModel

from bermo.encoders.sites import layers_of, prunable_sites
from bermo.nn.gates import Follower
from bermo.nn.masks import HardConcrete, ScoreMask, TopMask

MASKS = (TopMask, ScoreMask, HardConcrete, Follower)


@dataclass(frozen=True, kw_only=True)
class Count:
    """Kept and all weights: of the encoder without its embeddings, as the paper counts, and of the whole model."""

    encoder_kept: int
    encoder_total: int
    model_kept: int
    model_total: int

    @property
    def encoder_density(self) -> float:
        return self.encoder_kept / self.encoder_total

    @property
    def model_density(self) -> float:
        return self.model_kept / self.model_total


@torch.no_grad()
def fold_(model: nn.Module) -> None:
    """Write the masks into the weights as zeros and take them off, in place; outputs stay the same to the bit."""
    was_training = model.training
    model.eval()  # L0 folds the gates that evaluation uses
    for module, name in list(_masked(model)):
        _own_class_(module)
        parametrize.remove_parametrizations(module, name, leave_parametrized=True)
    model.train(was_training)


def _own_class_(module: nn.Module) -> None:
    """Give a module a class of its own: torch takes masks off by editing it, and a deep copy shares it with the original."""
    known = type(module)
    module.__class__ = type(known.__name__, known.__bases__, dict(vars(known)))


@torch.no_grad()
def folded_state(model: nn.Module) -> dict[str, Tensor]:
    """Return the state of a model as `fold_` would leave it, without changing the model.

    A folded copy would need the memory of a second model.
    """
    masked = {}
    for name, module in model.named_modules():
        for inner, parameter in _masked_here(module):
            mask = cast(nn.ModuleList, cast(nn.ModuleDict, inner.parametrizations)[parameter])[0]
            was_training = mask.training
            mask.eval()
            masked[f"{name}.{parameter}"] = getattr(inner, parameter).detach()
            mask.train(was_training)
    kept = {k: v for k, v in model.state_dict().items() if ".parametrizations." not in k}
    return kept | masked


@torch.no_grad()
def count(model: PreTrainedModel) -> Count:
    """Count kept and all weights; in prunable matrices a zero is not kept."""
    sites = {id(site.original): site for site in prunable_sites(model)}
    scores = {
        id(p)
        for name, p in model.named_parameters()
        if ".parametrizations." in name and name.endswith(".scores")
    }
    layers = {id(p) for layer in layers_of(model) for p in layer.parameters()}
    totals = dict.fromkeys(("encoder_kept", "encoder_total", "model_kept", "model_total"), 0)
    for parameter in model.parameters():
        if id(parameter) in scores:
            continue
        site = sites.get(id(parameter))
        kept = parameter.numel() if site is None else int(torch.count_nonzero(site.weight))
        parts = ("encoder", "model") if id(parameter) in layers else ("model",)
        for part in parts:
            totals[f"{part}_kept"] += kept
            totals[f"{part}_total"] += parameter.numel()
    return Count(**totals)


def has_masks(model: nn.Module) -> bool:
    """Tell whether a model has masks that are not folded."""
    return next(_masked(model), None) is not None


def _masked(model: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    for module in model.modules():
        yield from _masked_here(module)


def _masked_here(module: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    if parametrize.is_parametrized(module):
        for name, masks in cast(nn.ModuleDict, module.parametrizations).items():
            if isinstance(cast(nn.ModuleList, masks)[0], MASKS):
                yield module, name
