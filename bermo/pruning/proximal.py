"""Reweighted proximal pruning (RPP; Guo, Liu, Wang et al. 2019): min f(w) + γ Σ α|w|.

    w ← AdamW on f alone;  w ← sign(w) · max(|w| − γ · rate · α, 0);  now and then α ← 1 / (|w| + ε)

The steps are taken between the warm-ups of the schedule. Then the zeros are fixed, and what is left trains
on. With a penalty, γ is given. With a density, γ is in each step the smallest under which no more weights are
left, of all matrices together, than the schedule keeps: no weight is pulled more than that needs, and the
density is exact.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from transformers import PreTrainedModel

from bermo.encoders.sites import Site, prunable_sites
from bermo.errors import BermoError
from bermo.nn.masked import attach_mask_, is_masked
from bermo.nn.masks import top_masks
from bermo.nn.proximal import ZeroMask, proximal_, pull_of
from bermo.pruning.criteria import Proximal
from bermo.pruning.schedule import CubicSchedule

RENEWALS = 10
"""How often α is renewed while weights are pruned."""


class ProximalPruner:
    """A `Pruner` that changes the weights themselves, after each step of the optimiser.

    Each step is taken once: what was saved before it goes on with it. `apply` branches by the number of the
    step, so that it cannot be captured in a graph.
    """

    def __init__(self, model: PreTrainedModel, method: Proximal, schedule: CubicSchedule) -> None:
        self.model, self.method, self.schedule = model, method, schedule
        self.sites = prunable_sites(model)
        self.masks = [_attach_(site) for site in self.sites]
        # The rates at which the optimiser takes its next step; saved with the model.
        self.masks[0].register_buffer("rates", torch.zeros(len(self.sites), device=model.device))
        self.groups: list[dict[str, Any]] = []
        self.num_steps = 0
        first, last = schedule.first_step, schedule.last_step
        self.renewals = range(first, last, max(1, (last - first) // RENEWALS))

    def step(self) -> None:
        """Take the proximal step; call it right after the optimiser's step."""
        self.at(self.num_steps + 1)

    def at(self, step: int) -> None:
        """Do what follows the optimiser's step before this one."""
        self._note_rates_()
        self.plan(step)
        self.apply()

    def plan(self, step: int) -> None:
        self.num_steps = step
        for mask in self.masks:
            mask.is_fixed = step >= self.schedule.last_step

    @torch.no_grad()
    def apply(self) -> None:
        step, schedule = self.num_steps, self.schedule
        if schedule.first_step < step <= schedule.last_step:
            self._prune_()
        if step in self.renewals:
            for mask, weight in self.simple_masks():
                mask.pull.copy_(pull_of(weight))
        self._note_rates_()

    def _prune_(self) -> None:
        """Take the proximal step, and note which weights it left."""
        density = self.method.density
        if density is None:
            thresholds = self._penalty() * self._rates
            kept = None
        else:
            kept = self._largest(self.schedule.value(self.num_steps, 1.0, density))
            thresholds = self._least_threshold(kept).expand(len(self.masks))
        for index, (mask, weight) in enumerate(self.simple_masks()):
            proximal_(weight, mask.pull, thresholds[index])
            mask.mask.copy_(weight != 0 if kept is None else kept[index])
            if mask.is_fixed:
                weight.mul_(mask.mask)

    def _strengths(self) -> list[Tensor]:
        """The thresholds under which each weight would become zero: |w| / α."""
        return [weight.detach().abs() / mask.pull for mask, weight in self.simple_masks()]

    def _largest(self, density: float) -> list[Tensor]:
        """Return masks of the weights that become zero last, as many as a density keeps."""
        strengths = self._strengths()
        # Rounded first: 0.29 · 6400 is 1855.9999999999998 in floating point.
        number = math.floor(round(density * sum(item.numel() for item in strengths), 6))
        return top_masks(strengths, [number], is_global=True)

    def _least_threshold(self, kept: Sequence[Tensor]) -> Tensor:
        """Return the smallest threshold under which none but these weights are left."""
        pairs = zip(self._strengths(), kept, strict=True)
        return torch.stack([item.masked_fill(is_kept, 0).max() for item, is_kept in pairs]).max()

    def _penalty(self) -> float:
        assert self.method.penalty is not None
        if not self.groups:
            raise BermoError(
                "A proximal step is as long as the optimiser's rate says. Call pruner.watch(optimizer) before"
                " the first step, or give a density in place of the penalty."
            )
        return self.method.penalty

    @property
    def _rates(self) -> Tensor:
        """The noted rates, one for each matrix; another tensor after the model was moved."""
        rates: Tensor = self.masks[0].get_buffer("rates")
        return rates

    def _note_rates_(self) -> None:
        for index, group in enumerate(self.groups):
            self._rates[index] = group["lr"]

    def watch(self, optimizer: Optimizer) -> None:
        """Read the rates of this optimiser from now on; call it once, before the first step."""
        owners = {id(weight): group for group in optimizer.param_groups for weight in group["params"]}
        self.groups = [owners[id(weight)] for _, weight in self.simple_masks() if id(weight) in owners]
        if len(self.groups) < len(self.masks):
            raise BermoError(
                "The optimizer does not train all matrices that are pruned. Give it all of them."
            )

    def penalty(self) -> Tensor:
        """Nothing: the loss has no part in it."""
        return torch.zeros((), device=self.model.device)

    @property
    def density(self) -> float:
        return self.density_of(self.densities())

    def densities(self) -> dict[str, float]:
        kept = torch.stack([mask.mask.sum() for mask in self.masks]).tolist()
        pairs = zip(self.sites, kept, strict=True)
        return {site.name: number / site.original.numel() for site, number in pairs}

    def density_of(self, densities: Mapping[str, float]) -> float:
        sizes = {site.name: site.original.numel() for site in self.sites}
        return sum(densities[name] * size for name, size in sizes.items()) / sum(sizes.values())

    def scores(self) -> dict[str, nn.Parameter]:
        return {}

    def score_parameters(self) -> list[nn.Parameter]:
        return []

    def simple_masks(self) -> tuple[tuple[ZeroMask, nn.Parameter], ...]:
        return tuple(self._pairs())

    def generators(self) -> list[torch.Generator]:
        return []

    def _pairs(self) -> Iterator[tuple[ZeroMask, nn.Parameter]]:
        for mask, site in zip(self.masks, self.sites, strict=True):
            weight = site.original
            assert isinstance(weight, nn.Parameter)
            yield mask, weight


def _attach_(site: Site) -> ZeroMask:
    if is_masked(site.module, site.parameter):
        raise BermoError("This model has masks already. Call bermo.fold_(model) first.")
    mask = ZeroMask(site.original)
    attach_mask_(site.module, mask, site.parameter)
    return mask
