"""Structured fine-pruning: masks on whole heads and feed-forward neurons, or on whole layers, in training.

pruner = prune_units_(model, Movement(density=0.5), CubicSchedule(…))      the same use as bermo.prune_

Movement keeps the units with the highest scores, or (rank="size") the largest mean |W₂| · σ(score): heads
are ranked among heads and neurons among neurons, in each layer (scope="matrix") or over all layers
(scope="global"); soft movement and L0 as for weights. Density is the kept share of the weights in all
units; a unit's norms, biases and positions do not count.
"""

import math
from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from transformers import PreTrainedModel

from bermo.nn.masks import HardConcrete, Rank, soft_kept, top_masks_at
from bermo.pruning.criteria import L0, Method, Movement, SoftMovement, UnitKind, check_units
from bermo.pruning.schedule import Schedule
from bermo.pruning.step_numbers import StepNumbers
from bermo.pruning.unit_groups import MaskedGroup, importance_of, mask_groups_, set_groups_


class UnitPruner:
    """A `Pruner` of whole units: one score for each head, neuron or layer."""

    def __init__(
        self,
        model: PreTrainedModel,
        method: Method,
        schedule: Schedule,
        seed: int = 0,
        unit: UnitKind = "heads-and-neurons",
    ) -> None:
        check_units(method, unit)
        self.model, self.method, self.schedule = model, method, schedule
        self.rank: Rank = method.rank if isinstance(method, Movement) else "score"
        self.groups = mask_groups_(model, method, unit)
        self.numbers = StepNumbers(model, method, schedule, seed, holder=self.groups[0].masks[0])
        self.rivals: list[tuple[list[MaskedGroup], int]] = []
        self.at(0)

    @property
    def num_steps(self) -> int:
        """The step that the masks are at."""
        return self.numbers.step

    def step(self) -> None:
        """Move on to the next step of the schedule; call it after the optimiser's step."""
        self.at(self.num_steps + 1)

    def at(self, step: int) -> None:
        """Set the masks to what they are at a step, from the scores as they are."""
        self.plan(step)
        self.apply()

    @torch.no_grad()
    def plan(self, step: int) -> None:
        """Put the numbers that a step needs on the device: kept numbers, thresholds, strengths, seeds."""
        self.numbers.move_to(step)
        if isinstance(self.method, Movement):
            self.rivals = self._rivals(self.numbers.density(), self.method.scope == "global")
            for index, (_, num_kept) in enumerate(self.rivals):
                self.numbers.put(f"kept/{index}", num_kept)

    @torch.no_grad()
    def apply(self) -> None:
        """Set the masks as planned; on a GPU without waiting for the CPU, so that it can be captured."""
        match self.method:
            case Movement():
                for index, (rivals, _) in enumerate(self.rivals):
                    kept = self.numbers[f"kept/{index}"].view(1)
                    values = [importance_of(rivals, self.rank)]
                    set_groups_(rivals, top_masks_at(values, kept, False)[0])
            case SoftMovement():
                # A layer is one unit, so all layers are compared with each other: one of them is kept.
                is_layers = self.groups[0].kind == "layers"
                for rivals in [self.groups] if is_layers else [[group] for group in self.groups]:
                    scores = [importance_of(rivals)]
                    kept = soft_kept(scores, self.numbers["threshold"])
                    set_groups_(rivals, top_masks_at(scores, kept, False)[0])
            case L0():
                self._draw()

    def watch(self, optimizer: Optimizer) -> None:
        """Nothing of the optimiser is read: units are ranked by their size or their scores."""

    def _draw(self) -> None:
        for group in self.groups:
            first, *others = cast(tuple[HardConcrete, ...], group.masks)
            first.draw_(self.numbers.generator)
            for mask in others:
                mask.noise.copy_(first.noise)

    def penalty(self) -> Tensor:
        """What is added to the loss: λ(step) times the mean size of the masks, each by its weights."""
        return self.numbers.penalty(self._mean_size, self._density)

    def _mean_size(self) -> Tensor:
        sizes = [
            group.masks[0].size_penalty() * (group.cost * group.count / self._total) for group in self.groups
        ]
        return torch.stack(sizes).sum()

    @property
    def density(self) -> float:
        """The share of the units' weights that is kept now."""
        return self._density().item()

    def _density(self) -> Tensor:
        kept = torch.stack([group.num_open() * group.cost for group in self.groups]).sum()
        return kept / self._total

    def densities(self) -> dict[str, float]:
        """The share of the units kept in each group."""
        kept = torch.stack([group.num_open() for group in self.groups]).tolist()
        return {group.name: number / group.count for group, number in zip(self.groups, kept, strict=True)}

    def density_of(self, densities: Mapping[str, float]) -> float:
        """The share of the units' weights that these shares of the groups make up."""
        kept = (densities[group.name] * group.count * group.cost for group in self.groups)
        return sum(kept) / self._total

    @property
    def _total(self) -> int:
        return sum(group.cost * group.count for group in self.groups)

    def scores(self) -> dict[str, nn.Parameter]:
        """The learned scores, by the names of the groups."""
        return {group.name: group.scores for group in self.groups}

    def score_parameters(self) -> list[nn.Parameter]:
        """The learned scores, for a parameter group of their own (rate 1e-2, no decay)."""
        return list(self.scores().values())

    def simple_masks(self) -> tuple[()]:
        """None: a unit's mask is no mask over single weights."""
        return ()

    def generators(self) -> list[torch.Generator]:
        """What draws random numbers in `apply`."""
        return self.numbers.generators()

    def _rivals(self, density: float, is_global: bool) -> list[tuple[list[MaskedGroup], int]]:
        """Groups whose units compete, and how many of them are kept.

        The number of heads is rounded to the nearest; neurons fill up to the density.
        """
        is_one = is_global or self.groups[0].kind == "layers"
        pools = [
            [group for group in self.groups if is_one or group.layer == layer]
            for layer in ([0] if is_one else sorted({group.layer for group in self.groups}))
        ]
        rivals = []
        for pool in pools:
            room = density * sum(group.cost * group.count for group in pool)
            coarse = [group for group in pool if group.kind != "neurons"]
            if coarse:
                number = math.floor(density * sum(group.count for group in coarse) + 0.5)
                rivals.append((coarse, number))
                room -= number * coarse[0].cost
            fine = [group for group in pool if group.kind == "neurons"]
            if fine:
                number = math.floor(room / fine[0].cost + 1e-9)
                rivals.append((fine, max(0, min(number, sum(group.count for group in fine)))))
        return rivals


def prune_units_(
    model: PreTrainedModel,
    method: Method,
    schedule: Schedule,
    seed: int = 0,
    unit: UnitKind = "heads-and-neurons",
) -> UnitPruner:
    """Put masks on all heads and neurons (or layers) of a model, in place, and return what moves them.

    >>> model = bermo.BermoForSequenceClassification.from_backbone("box")
    >>> schedule = bermo.CubicSchedule(total_steps=10, warmup_steps=1)
    >>> pruner = bermo.prune_units_(model, bermo.Movement(density=0.5, rank="size"), schedule)
    >>> pruner.at(10)
    >>> bermo.fold_(model)
    >>> small = bermo.shrink(model)
    >>> bermo.count(small).encoder_total < bermo.count(model).encoder_total
    True
    """
    return UnitPruner(model, method, schedule, seed, unit)
