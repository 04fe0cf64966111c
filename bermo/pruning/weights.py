"""Fine-pruning: masks on an encoder's matrices that close on a cubic schedule while it is trained.

pruner = prune_(model, Movement(density=0.1), CubicSchedule(total_steps=…, warmup_steps=…))
loss = model(**batch).loss + pruner.penalty(); loss.backward(); optimizer.step(); pruner.step()
bermo.fold_(model)      masks become zeros, an ordinary model again, to the bit
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, cast, get_args, get_origin, get_type_hints

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from transformers import PreTrainedModel

from bermo.encoders.sites import Site, prunable_sites
from bermo.errors import BermoError
from bermo.nn.fast.choice import Choice
from bermo.nn.fast.penalty import Scores, mean_size
from bermo.nn.masks import HardConcrete, Mask, ScoreMask, TopMask, importance, soft_mask, top_masks
from bermo.pruning.criteria import L0, Magnitude, Method, Movement, Numbers, SoftMovement
from bermo.pruning.schedule import CubicSchedule


class Pruner:
    """The masks of a model under one method and one schedule. `at` sets them for a step; all else is a formula of it."""

    def __init__(
        self, model: PreTrainedModel, method: Method, schedule: CubicSchedule, seed: int = 0
    ) -> None:
        self.check(method)
        self.model, self.method, self.schedule, self.seed = model, method, schedule, seed
        self.sites = prunable_sites(model)
        for site in self.sites:
            _attach_(site, method)
        self.masks = [mask_of(site) for site in self.sites]
        self.num_steps = 0
        self.kept: list[int] = []
        self.numbers = Numbers(model)
        self.numbers.lead(method, self.masks[0])
        self.choice, self.scores = Choice(), Scores()
        self.at(0)

    @staticmethod
    def check(method: Method) -> None:
        """Refuse a method whose numbers make no sense."""
        density = method.density
        if density is not None and not 0 < density <= 1:
            raise BermoError(f"density is the share kept, over 0 and at most 1, but got {density}.")
        if isinstance(method, SoftMovement | L0):
            if (method.penalty is None) == (density is None):
                name = "L0" if isinstance(method, L0) else "Soft movement"
                raise BermoError(f"{name} takes a penalty or a density to aim at, one of the two.")
            if method.penalty is not None and not method.penalty > 0:
                raise BermoError(f"penalty must be over 0, but got {method.penalty}.")
        if isinstance(method, SoftMovement) and not 0 < method.threshold < 1:
            raise BermoError(f"threshold is one of σ(score), between 0 and 1, but got {method.threshold}.")
        if len(method.block) != 2 or min(method.block) < 0:
            raise BermoError(f"block is rows,columns, 0 for all of them, but got {method.block}.")
        for name, hint in get_type_hints(type(method)).items():
            choices = get_args(hint) if get_origin(hint) is Literal else ()
            if choices and (value := getattr(method, name)) not in choices:
                raise BermoError(f'{name} is {" or ".join(choices)}, but got "{value}".')

    def step(self) -> None:
        """Move on to the next step of the schedule; call it after the optimiser's step."""
        self.at(self.num_steps + 1)

    def at(self, step: int) -> None:
        """Set the masks to what they are at a step, from the scores as they stand."""
        self.plan(step)
        self.apply()

    @torch.no_grad()
    def plan(self, step: int) -> None:
        """Put the numbers that a step needs where the masks are: how many are kept, thresholds, strengths, seeds."""
        self.num_steps = step
        method = self.method
        match method:
            case Magnitude() | Movement():
                density = self.schedule.value(step, 1.0, method.density)
                sizes = self._sizes()
                # Rounded first: 0.29 · 6400 is 1855.9999999999998 in floating point.
                self.kept = [math.floor(round(density * size, 6)) for size in sizes]
                for size, number in {*zip(sizes, self.kept, strict=True)}:
                    self.numbers.put(f"kept/{size}", number)
            case _:
                self.numbers.plan(method, self.schedule, step, self.seed)

    @torch.no_grad()
    def apply(self) -> None:
        """Set the masks as planned; on a graphics card this never waits for the host, so that it can be captured."""
        if isinstance(self.method, L0):
            self.scores.draw_(cast(list[HardConcrete], self.masks), self.numbers.generator)
        elif self.masks[0].mask.is_cuda:
            choose_on_device_([self], self.choice)
        else:
            self._set_on_host_()

    def _set_on_host_(self) -> None:
        method = self.method
        if isinstance(method, SoftMovement):
            for mask in self._scored():
                mask.mask.copy_(soft_mask(mask.scores, self.numbers["threshold"]))
        else:
            found = top_masks(self._importances(), self.kept, self._is_global())
            torch._foreach_copy_([mask.mask for mask in self.masks], found)

    def wanted(self) -> Tensor:
        """How many are kept now of each matrix, or of all of them under a global scope; on the device."""
        if isinstance(self.method, SoftMovement):
            return self.scores.kept(self._importances(), self.numbers["threshold"])
        return torch.stack([self.numbers[f"kept/{size}"] for size in self._sizes()])

    def _importances(self) -> list[Tensor]:
        is_scaled = self.is_scaled()
        return [importance(mask, site.original, is_scaled) for mask, site in self.pairs()]

    def is_scaled(self) -> bool:
        """Tell whether weights are ranked by |W| · σ(S)."""
        return isinstance(self.method, Movement) and self.method.rank == "size"

    def _is_global(self) -> bool:
        return isinstance(self.method, Magnitude | Movement) and self.method.scope == "global"

    def _sizes(self) -> list[int]:
        sizes = [mask.blocks.num for mask in self.masks]
        return [sum(sizes)] if self._is_global() else sizes

    def segments(self) -> list[int]:
        """Which number of `wanted` each matrix goes by."""
        return [0 if self._is_global() else place for place in range(len(self.masks))]

    def penalty(self) -> Tensor:
        """What is added to the loss: λ(step) times the mean size of the masks; 0 for magnitude and movement."""
        method = self.method
        if not isinstance(method, SoftMovement | L0):
            return torch.zeros((), device=self.model.device)
        masks = self._scored()
        size, sizes = mean_size(masks)[0], masks[0].sizes
        density = self._density if sizes is None else lambda: sizes.density()[0]
        return self.numbers.strength(method, density) * size

    @property
    def density(self) -> float:
        """The share of the prunable weights that is kept now."""
        return self._density().item()

    def _density(self) -> Tensor:
        kept = torch.stack([_kept(mask) for mask in self.masks]).sum()
        return kept / sum(site.original.numel() for site in self.sites)

    def densities(self) -> dict[str, float]:
        """The share kept at each site."""
        kept = torch.stack([_kept(mask) for mask in self.masks]).tolist()
        return {
            site.name: number / site.original.numel() for site, number in zip(self.sites, kept, strict=True)
        }

    def density_of(self, densities: Mapping[str, float]) -> float:
        """The share of the prunable weights that these shares of the sites make up."""
        sizes = {site.name: site.original.numel() for site in self.sites}
        return sum(densities[name] * size for name, size in sizes.items()) / sum(sizes.values())

    def score_parameters(self) -> list[nn.Parameter]:
        """The learned scores, for a parameter group of their own (rate 1e-2, no decay)."""
        return [mask.scores for mask in self._scored()]

    def simple_masks(self) -> tuple[tuple[Mask, nn.Parameter], ...]:
        """The masks over single weights and their weights, which a `Shadow` can apply for all at once; else none."""
        found = []
        for mask, site in self.pairs():
            weight = site.original
            if mask.blocks.size != (1, 1):
                return ()
            if weight.dtype != torch.float32 or not weight.requires_grad:
                return ()
            found.append((mask, cast(nn.Parameter, weight)))
        return tuple(found)

    def pairs(self) -> Iterator[tuple[Mask, Site]]:
        """The masks and the sites they are on."""
        return zip(self.masks, self.sites, strict=True)

    def _scored(self) -> list[ScoreMask | HardConcrete]:
        return [mask for mask in self.masks if not isinstance(mask, TopMask)]


class Together:
    """Pruners of several models under the same method, whose masks are set in one set of launches on a graphics card."""

    def __init__(self, pruners: Sequence[Pruner]) -> None:
        methods = {pruner.method for pruner in pruners}
        if len(methods) != 1:
            raise BermoError(f"Together takes pruners of one method, but got {len(methods)}: {methods}.")
        self.pruners, self.choice = list(pruners), Choice()

    @torch.no_grad()
    def apply(self) -> None:
        """Set the masks of all as planned: the same ones as by each pruner's own `apply`."""
        masks = [pruner.masks[0].mask for pruner in self.pruners]
        is_one_card = masks[0].is_cuda and len({mask.device for mask in masks}) == 1
        if is_one_card and not isinstance(self.pruners[0].method, L0):
            choose_on_device_(self.pruners, self.choice)
        else:
            for pruner in self.pruners:
                pruner.apply()


def choose_on_device_(pruners: Sequence[Pruner], choice: Choice) -> None:
    """Set the masks of pruners of one method where they are, without a word from the host."""
    segments: list[int] = []
    for pruner in pruners:
        start = segments[-1] + 1 if segments else 0
        segments += [start + segment for segment in pruner.segments()]
    pairs = [(mask, site.original) for pruner in pruners for mask, site in pruner.pairs()]
    kept = torch.cat([pruner.wanted() for pruner in pruners])
    choice.choose_(pairs, kept, segments, pruners[0].is_scaled())


def prune_(model: PreTrainedModel, method: Method, schedule: CubicSchedule, seed: int = 0) -> Pruner:
    """Put masks on all prunable matrices of a model, in place, and return what moves them."""
    if not isinstance(model, PreTrainedModel):
        raise BermoError(f"prune_ takes a model of transformers, but got {type(model).__name__}.")
    return Pruner(model, method, schedule, seed)


def mask_of(site: Site) -> Mask:
    """Return the mask on a site."""
    masks = cast(nn.ModuleDict, site.module.parametrizations)
    return cast(Mask, cast(nn.ModuleList, masks[site.parameter])[0])


def _attach_(site: Site, method: Method) -> None:
    if parametrize.is_parametrized(site.module, site.parameter):
        raise BermoError("This model has masks already. Call bermo.fold_(model) first.")
    block = method.block[::-1] if site.is_transposed else method.block
    weight = site.original
    try:
        match method:
            case Magnitude():
                mask: Mask = TopMask(weight, block)
            case Movement():
                mask = ScoreMask(weight, block, from_magnitude=method.start == "magnitude")
            case SoftMovement():
                mask = ScoreMask(weight, block)
            case L0():
                mask = HardConcrete(weight, block)
    except ValueError as error:
        raise BermoError(f"{site.name}: {error}. Choose another block.") from None
    parametrize.register_parametrization(site.module, site.parameter, mask, unsafe=True)


def _kept(mask: Mask) -> Tensor:
    return mask.mask.sum() * math.prod(mask.blocks.size)
