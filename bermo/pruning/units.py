"""Structured fine-pruning: gates on whole heads and feed-forward neurons, or on whole layers, while a model trains.

pruner = prune_units_(model, Movement(density=0.5), CubicSchedule(…))      the same use as bermo.prune_

Movement keeps the units with the highest scores, or (rank="size") the largest mean |W₂| · σ(score): heads are ranked among
heads and neurons among neurons, in each layer (scope="matrix") or over all layers (scope="global"); soft movement and L0 as
for weights. Density is the kept share of the weights in all units; a unit's norms, biases and positions do not count.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from transformers import PreTrainedModel

from bermo.encoders.sites import Site
from bermo.encoders.structure import Group, Kind, groups_of
from bermo.errors import BermoError
from bermo.nn.gates import Follower, GateMask, share_scores_
from bermo.nn.masks import HardConcrete, ScoreMask, importance, soft_kept, top_masks_at
from bermo.pruning.criteria import L0, Magnitude, Method, Movement, Numbers, SoftMovement
from bermo.pruning.schedule import CubicSchedule
from bermo.pruning.weights import Pruner

Unit = Literal["heads-and-neurons", "layers"]


@dataclass(frozen=True, kw_only=True)
class Gates:
    """The gates of one group of units: `masks` act on its reading matrices and share their scores."""

    name: str
    layer: int
    kind: Kind | Literal["layers"]
    masks: tuple[GateMask, ...]
    cost: int
    """Weights behind one gate."""
    output: Site
    """The matrix that reads the units; of a whole layer, the first."""

    @property
    def scores(self) -> nn.Parameter:
        return self.masks[0].scores

    @property
    def count(self) -> int:
        return self.scores.numel()

    def num_open(self) -> Tensor:
        """Return how many units are open, as a tensor."""
        return self.masks[0].mask.sum()

    def set_(self, mask: Tensor) -> None:
        """Open and close the gates."""
        for own in self.masks:
            own.mask.copy_(mask.view_as(own.mask))


class UnitPruner:
    """The gates of a model under one method and one schedule; used as `bermo.pruning.weights.Pruner` is."""

    def __init__(
        self,
        model: PreTrainedModel,
        method: Method,
        schedule: CubicSchedule,
        seed: int = 0,
        unit: Unit = "heads-and-neurons",
    ) -> None:
        Pruner.check(method)
        if isinstance(method, Magnitude) or method.block != (1, 1):
            raise BermoError(
                "Heads, neurons and layers are chosen by movement, soft movement or L0, and have no blocks."
            )
        self.is_scaled = isinstance(method, Movement) and method.rank == "size"
        if self.is_scaled and unit == "layers":
            raise BermoError(
                'Whole layers are ranked by their scores. Leave rank="size" out, or prune heads-and-neurons.'
            )
        self.model, self.method, self.schedule, self.seed = model, method, schedule, seed
        groups = groups_of(model)
        if not groups:
            raise BermoError("This model has no head and no neuron left that could be pruned.")
        if unit == "layers":
            layers = [list(found) for _, found in groupby(groups, key=lambda group: group.layer)]
            if len(layers) == 1:
                raise BermoError("This encoder has one layer of weights, which cannot be pruned whole.")
            self.gates = [_layer_gate_(found, method) for found in layers]
        else:
            self.gates = [_unit_gates_(group, method) for group in groups]
        self.num_steps = 0
        self.numbers = Numbers(model)
        self.numbers.lead(method, self.masks[0])
        self.rivals: list[tuple[list[Gates], int]] = []
        self.at(0)

    @property
    def sites(self) -> list[Gates]:
        """What is gated, by name."""
        return self.gates

    @property
    def masks(self) -> list[GateMask]:
        """One mask for each of `sites`, with its scores."""
        return [gates.masks[0] for gates in self.gates]

    def step(self) -> None:
        """Move on to the next step of the schedule; call it after the optimiser's step."""
        self.at(self.num_steps + 1)

    def at(self, step: int) -> None:
        """Set the gates to what they are at a step, from the scores as they stand."""
        self.plan(step)
        self.apply()

    @torch.no_grad()
    def plan(self, step: int) -> None:
        """Put the numbers that a step needs where the gates are: how many are kept, thresholds, strengths, seeds."""
        self.num_steps = step
        method = self.method
        match method:
            case Movement():
                density = self.schedule.value(step, 1.0, method.density)
                self.rivals = self._numbers(density, method.scope == "global")
                for place, (_, num_kept) in enumerate(self.rivals):
                    self.numbers.put(f"kept/{place}", num_kept)
            case SoftMovement() | L0():
                self.numbers.plan(method, self.schedule, step, self.seed)

    @torch.no_grad()
    def apply(self) -> None:
        """Set the gates as planned; nothing waits for the host, so that it can be captured."""
        match self.method:
            case Movement():
                for place, (rivals, _) in enumerate(self.rivals):
                    kept = self.numbers[f"kept/{place}"].view(1)
                    worth = [_worth(rivals, self.is_scaled)]
                    _set_together_(rivals, top_masks_at(worth, kept, False)[0])
            case SoftMovement():
                # A layer is one gate, so all layers are looked at together: one of them stays.
                is_layers = self.gates[0].kind == "layers"
                for rivals in [self.gates] if is_layers else [[gates] for gates in self.gates]:
                    scores = [_worth(rivals)]
                    kept = soft_kept(scores, self.numbers["threshold"])
                    _set_together_(rivals, top_masks_at(scores, kept, False)[0])
            case L0():
                self._draw()

    def penalty(self) -> Tensor:
        """What is added to the loss: λ(step) times the mean size of the gates, each by its weights."""
        method = self.method
        if not isinstance(method, SoftMovement | L0):
            return torch.zeros((), device=self.model.device)
        sizes = [
            gates.masks[0].size_penalty() * (gates.cost * gates.count / self._total) for gates in self.gates
        ]
        size = torch.stack(sizes).sum()
        return self.numbers.strength(method, self._density) * size

    @property
    def density(self) -> float:
        """The share of the units' weights that is kept now."""
        return self._density().item()

    def _density(self) -> Tensor:
        kept = torch.stack([gates.num_open() * gates.cost for gates in self.gates]).sum()
        return kept / self._total

    def densities(self) -> dict[str, float]:
        """The share of the units kept in each group."""
        kept = torch.stack([gates.num_open() for gates in self.gates]).tolist()
        return {gates.name: number / gates.count for gates, number in zip(self.gates, kept, strict=True)}

    def density_of(self, densities: Mapping[str, float]) -> float:
        """The share of the units' weights that these shares of the groups make up."""
        kept = (densities[gates.name] * gates.count * gates.cost for gates in self.gates)
        return sum(kept) / self._total

    def score_parameters(self) -> list[nn.Parameter]:
        """The learned scores, for a parameter group of their own (rate 1e-2, no decay)."""
        return [gates.scores for gates in self.gates]

    @property
    def _total(self) -> int:
        return sum(gates.cost * gates.count for gates in self.gates)

    def _numbers(self, density: float, is_global: bool) -> list[tuple[list[Gates], int]]:
        """Say how many units of which gates stay: heads to the nearest whole, neurons fill up to the density."""
        is_one = is_global or self.gates[0].kind == "layers"
        parts = [
            [gates for gates in self.gates if is_one or gates.layer == layer]
            for layer in ([0] if is_one else sorted({gates.layer for gates in self.gates}))
        ]
        found = []
        for part in parts:
            room = density * sum(gates.cost * gates.count for gates in part)
            coarse = [gates for gates in part if gates.kind != "neurons"]
            if coarse:
                number = math.floor(density * sum(gates.count for gates in coarse) + 0.5)
                found.append((coarse, number))
                room -= number * coarse[0].cost
            fine = [gates for gates in part if gates.kind == "neurons"]
            if fine:
                number = math.floor(room / fine[0].cost + 1e-9)
                found.append((fine, max(0, min(number, sum(gates.count for gates in fine)))))
        return found

    def simple_masks(self) -> tuple[()]:
        """None: a gate is no mask over single weights."""
        return ()

    def _draw(self) -> None:
        for gates in self.gates:
            first, *others = cast(tuple[HardConcrete, ...], gates.masks)
            first.draw_(self.numbers.generator)
            for mask in others:
                mask.noise.copy_(first.noise)


def prune_units_(
    model: PreTrainedModel,
    method: Method,
    schedule: CubicSchedule,
    seed: int = 0,
    unit: Unit = "heads-and-neurons",
) -> UnitPruner:
    """Put gates on all heads and neurons (or layers) of a model, in place, and return what moves them."""
    return UnitPruner(model, method, schedule, seed, unit)


def _worth(gates: list[Gates], is_scaled: bool = False) -> Tensor:
    """What the units of several gates are ranked by: their scores, or the sizes of what is read from them times σ(score)."""
    found = [importance(item.masks[0], item.output.original, is_scaled) for item in gates]
    return torch.cat([item.detach().flatten() for item in found])


def _set_together_(gates: list[Gates], mask: Tensor) -> None:
    """Set several gates from one mask over all their units."""
    for item, part in zip(gates, mask.split([item.count for item in gates]), strict=True):
        item.set_(part)


def _unit_gates_(group: Group, method: Method) -> Gates:
    mask = _mask(group, method, group.size)
    _attach_(group, mask, is_whole=False)
    return Gates(
        name=group.name,
        layer=group.layer,
        kind=group.kind,
        masks=(mask,),
        cost=group.cost,
        output=group.output,
    )


def _layer_gate_(groups: list[Group], method: Method) -> Gates:
    """One gate for all units of a layer; its norms and biases stay, and so does what passes beside it."""
    masks = [_mask(group, method, group.size * group.count) for group in groups]
    share_scores_(masks)
    for group, mask in zip(groups, masks, strict=True):
        _attach_(group, mask, is_whole=True)
    cost = sum(group.cost * group.count for group in groups)
    layer = groups[0].layer
    return Gates(
        name=f"layer.{layer}",
        layer=layer,
        kind="layers",
        masks=tuple(masks),
        cost=cost,
        output=groups[0].output,
    )


def _mask(group: Group, method: Method, columns: int) -> GateMask:
    weight = group.output.original
    block = (columns, 0) if group.output.is_transposed else (0, columns)
    if isinstance(method, L0):
        return HardConcrete(weight, block)
    is_sized = isinstance(method, Movement) and method.start == "magnitude"
    return ScoreMask(weight, block, from_magnitude=is_sized)


def _attach_(group: Group, mask: GateMask, is_whole: bool) -> None:
    """Put a mask on the reading matrix of a group, and followers on the matrices that feed it."""
    if any(_is_masked(site) for site in (group.output, *group.inputs)):
        raise BermoError("This model has masks already. Call bermo.fold_(model) first.")
    _register_(group.output, mask)
    for site in group.inputs:
        weight = site.original
        if is_whole:
            follower = Follower(weight, (0, 0), mask, _same)
        else:
            pieces = group.input_units()
            is_last_axis = site.is_transposed or weight.ndim == 3
            size = (weight[0].numel() if is_last_axis else weight.shape[0]) // pieces
            block = (0, size) if is_last_axis else (size, 0)
            times = 1 if group.is_interleaved else group.parts
            follower = Follower(weight, block, mask, partial(_repeat, times=times))
        _register_(site, follower)


def _register_(site: Site, mask: nn.Module) -> None:
    parametrize.register_parametrization(site.module, site.parameter, mask, unsafe=True)


def _is_masked(site: Site) -> bool:
    return parametrize.is_parametrized(site.module, site.parameter)


def _same(mask: Tensor) -> Tensor:
    return mask


def _repeat(mask: Tensor, times: int) -> Tensor:
    return mask.repeat(times)
