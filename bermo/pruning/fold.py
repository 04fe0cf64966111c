"""Masks written into the weights as zeros and taken off, and what is left of a model counted."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from bermo.encoders.sites import find_sites, layers_of
from bermo.nn.masked import beside_weights, masked_parameters, remove_mask_, without_masks


@dataclass(frozen=True, kw_only=True)
class Count:
    """Kept and all weights: of the encoder without embeddings, as BERMo's paper counts, and of the model."""

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
    """Write the masks into the weights as zeros and take them off, in place; outputs stay as they are.

    >>> model = bermo.BermoForSequenceClassification.from_backbone("box")
    >>> schedule = bermo.CubicSchedule(total_steps=10, warmup_steps=1)
    >>> pruner = bermo.prune_(model, bermo.Magnitude(density=0.1), schedule)
    >>> pruner.at(10)
    >>> bermo.fold_(model)
    >>> kept = bermo.count(model)
    >>> round(kept.encoder_kept / kept.encoder_total, 2)
    0.1
    """
    was_training = model.training
    # L0 folds the values that evaluation uses, without noise.
    model.eval()
    for module in list(model.modules()):
        for name in masked_parameters(module):
            remove_mask_(module, name)
    model.train(was_training)


def folded_state(model: nn.Module) -> dict[str, Tensor]:
    """Return the state of a model as `fold_` would leave it, without changing the model.

    A folded copy would need the memory of a second model.
    """
    return without_masks(model.state_dict())


@torch.no_grad()
def count(model: PreTrainedModel) -> Count:
    """Count kept and all weights; in prunable matrices a zero is not kept.

    >>> bermo.count(bermo.BermoModel.from_backbone("box")).model_total
    5580744
    """
    sites = {id(site.original): site for site in find_sites(model)}
    scores = {id(parameter) for parameter in beside_weights(model)}
    layers = {id(p) for layer in layers_of(model) for p in layer.parameters()}
    totals = dict.fromkeys(("encoder_kept", "encoder_total", "model_kept", "model_total"), 0)
    for parameter in model.parameters():
        if id(parameter) in scores:
            continue
        site = sites.get(id(parameter))
        kept = parameter.numel() if site is None else int(torch.count_nonzero(site.weight))
        for whole in ("encoder", "model") if id(parameter) in layers else ("model",):
            totals[f"{whole}_kept"] += kept
            totals[f"{whole}_total"] += parameter.numel()
    return Count(**totals)


def has_masks(model: nn.Module) -> bool:
    """Tell whether a model has masks that are not folded."""
    return any(masked_parameters(module) for module in model.modules())
