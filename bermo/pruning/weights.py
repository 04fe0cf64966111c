"""Fine-pruning: masks on an encoder's matrices that close on a cubic schedule while it is trained.

pruner = prune_(model, Movement(density=0.1), CubicSchedule(total_steps=…, warmup_steps=…))
optimizer = torch.optim.AdamW(bermo.parameter_groups(model, lr=…)); pruner.watch(optimizer)
loss = model(**batch).loss + pruner.penalty(); loss.backward(); optimizer.step(); pruner.step()
bermo.fold_(model)      masks become zeros, an ordinary model again, to the bit
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from transformers import PreTrainedModel

from bermo.encoders.sites import Site, prunable_sites
from bermo.errors import BermoError
from bermo.nn.fast.penalty import ScoreKernels, mean_size
from bermo.nn.fast.select_masks import MaskSelector
from bermo.nn.masked import attach_mask_, is_masked
from bermo.nn.masks import HardConcrete, Mask, Rank, ScoreMask, TopMask, importance, soft_mask, top_masks
from bermo.pruning.criteria import L0, Magnitude, Method, Movement, Ranked, SoftMovement
from bermo.pruning.moments import second_moments
from bermo.pruning.schedule import Schedule
from bermo.pruning.step_numbers import StepNumbers


class WeightPruner:
    """A `Pruner` of single weights or blocks of weights: one mask on each prunable matrix."""

    def __init__(self, model: PreTrainedModel, method: Method, schedule: Schedule, seed: int = 0) -> None:
        self.model, self.method, self.schedule = model, method, schedule
        self.sites = prunable_sites(model)
        self.masks = [_attach_(site, method) for site in self.sites]
        self.numbers = StepNumbers(model, method, schedule, seed, holder=self.masks[0])
        self.selector, self.score_kernels = MaskSelector(), ScoreKernels()
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
        if isinstance(self.method, Ranked):
            self._check_watched()
            for size, number in {*zip(self._sizes(), self._kept(), strict=True)}:
                self.numbers.put(f"kept/{size}", number)

    @torch.no_grad()
    def apply(self) -> None:
        """Set the masks as planned; on a GPU without waiting for the CPU, so that it can be captured."""
        if isinstance(self.method, L0):
            self.score_kernels.draw_(cast(list[HardConcrete], self.masks), self.numbers.generator)
        elif self.masks[0].mask.is_cuda:
            select_on_device_([self], self.selector)
        else:
            self._set_on_cpu_()

    def _set_on_cpu_(self) -> None:
        if isinstance(self.method, SoftMovement):
            for mask in self._scored():
                mask.mask.copy_(soft_mask(mask.scores, self.numbers["threshold"]))
        else:
            made = top_masks(self._importances(), self._kept(), self._is_global())
            torch._foreach_copy_([mask.mask for mask in self.masks], made)

    def _check_watched(self) -> None:
        is_blind = self.rank == "sensitivity" and cast(ScoreMask, self.masks[0]).moment is None
        if is_blind and self.numbers.density() < 1:
            raise BermoError(
                "Movement by sensitivity reads AdamW's second moments. Call pruner.watch(optimizer) before"
                ' the first step, or choose rank="size".'
            )

    def kept_on_device(self) -> Tensor:
        """How many are kept now of each matrix, or of all of them under a global scope; on the device."""
        if isinstance(self.method, SoftMovement):
            return self.score_kernels.count_kept(self._importances(), self.numbers["threshold"])
        return torch.stack([self.numbers[f"kept/{size}"] for size in self._sizes()])

    def _kept(self) -> list[int]:
        # Rounded first: 0.29 · 6400 is 1855.9999999999998 in floating point.
        density = self.numbers.density()
        return [math.floor(round(density * size, 6)) for size in self._sizes()]

    def _importances(self) -> list[Tensor]:
        return [importance(mask, site.original, self.rank) for mask, site in self.pairs()]

    @property
    def rank(self) -> Rank:
        """What weights with scores are ranked by."""
        return self.method.rank if isinstance(self.method, Movement) else "score"

    def watch(self, optimizer: Optimizer) -> None:
        """Read from now on what this optimiser knows of the scores; call it once, before the first step."""
        if self.rank == "sensitivity":
            self.read(second_moments(optimizer, self.score_parameters()))

    def read(self, moments: Mapping[int, Tensor]) -> None:
        """Rank by these second moments, given by the addresses of the scores."""
        for mask in self._scored():
            if isinstance(mask, ScoreMask):
                mask.moment = moments[mask.scores.data_ptr()].view_as(mask.scores)

    def _is_global(self) -> bool:
        return isinstance(self.method, Ranked) and self.method.scope == "global"

    def _sizes(self) -> list[int]:
        sizes = [mask.blocks.num for mask in self.masks]
        return [sum(sizes)] if self._is_global() else sizes

    def segments(self) -> list[int]:
        """Which number of `kept_on_device` each matrix goes by."""
        return [0 if self._is_global() else index for index in range(len(self.masks))]

    def penalty(self) -> Tensor:
        """What is added to the loss: λ(step) times the mean size of the masks; 0 without a penalty."""
        return self.numbers.penalty(lambda: mean_size(self._scored())[0], self._density)

    @property
    def density(self) -> float:
        """The share of the prunable weights that is kept now."""
        return self._count_density().item()

    def _density(self) -> Tensor:
        """The kept share, on the device; counted with the mean size, where one pass gives both."""
        penalty_size = self._scored()[0].penalty_size
        return self._count_density() if penalty_size is None else cast(Tensor, penalty_size.density()[0])

    def _count_density(self) -> Tensor:
        kept = torch.stack([_num_kept(mask) for mask in self.masks]).sum()
        return kept / sum(site.original.numel() for site in self.sites)

    def densities(self) -> dict[str, float]:
        """The share kept at each site."""
        kept = torch.stack([_num_kept(mask) for mask in self.masks]).tolist()
        return {
            site.name: number / site.original.numel() for site, number in zip(self.sites, kept, strict=True)
        }

    def density_of(self, densities: Mapping[str, float]) -> float:
        """The share of the prunable weights that these shares of the sites make up."""
        sizes = {site.name: site.original.numel() for site in self.sites}
        return sum(densities[name] * size for name, size in sizes.items()) / sum(sizes.values())

    def scores(self) -> dict[str, nn.Parameter]:
        """The learned scores, by the names of the sites; empty for magnitude."""
        return {site.name: mask.scores for mask, site in self.pairs() if not isinstance(mask, TopMask)}

    def score_parameters(self) -> list[nn.Parameter]:
        """The learned scores, for a parameter group of their own (rate 1e-2, no decay)."""
        return list(self.scores().values())

    def simple_masks(self) -> tuple[tuple[Mask, nn.Parameter], ...]:
        """The masks over single float32 weights, with the weights, if all are such: for a `Shadow`."""
        pairs = []
        for mask, site in self.pairs():
            weight = site.original
            if mask.blocks.size != (1, 1):
                return ()
            if weight.dtype != torch.float32 or not weight.requires_grad:
                return ()
            pairs.append((mask, cast(nn.Parameter, weight)))
        return tuple(pairs)

    def generators(self) -> list[torch.Generator]:
        """What draws random numbers in `apply`."""
        return self.numbers.generators()

    def pairs(self) -> Iterator[tuple[Mask, Site]]:
        """The masks and the sites they are on."""
        return zip(self.masks, self.sites, strict=True)

    def _scored(self) -> list[ScoreMask | HardConcrete]:
        return [mask for mask in self.masks if not isinstance(mask, TopMask)]


class PrunerGroup:
    """Pruners of several models under one criterion, whose masks are set in one set of launches on a GPU."""

    def __init__(self, pruners: Sequence[WeightPruner]) -> None:
        methods = {pruner.method for pruner in pruners}
        if len(methods) != 1:
            raise BermoError(f"A group takes pruners of one method, but got {len(methods)}: {methods}.")
        self.pruners, self.selector = list(pruners), MaskSelector()

    @torch.no_grad()
    def apply(self, stacked: Sequence[Mask] = ()) -> None:
        """Set the masks of all as planned: the same ones as by each pruner's own `apply`.

        Of models trained as one give the `stacked` masks, whose copies may be written with them.
        """
        masks = [pruner.masks[0].mask for pruner in self.pruners]
        is_one_gpu = masks[0].is_cuda and len({mask.device for mask in masks}) == 1
        if is_one_gpu and not isinstance(self.pruners[0].method, L0):
            select_on_device_(self.pruners, self.selector, stacked)
        else:
            for pruner in self.pruners:
                pruner.apply()


def select_on_device_(
    pruners: Sequence[WeightPruner], selector: MaskSelector, stacked: Sequence[Mask] = ()
) -> None:
    """Set the masks of pruners of one criterion on their device, without waiting for the CPU."""
    segments: list[int] = []
    for pruner in pruners:
        start = segments[-1] + 1 if segments else 0
        segments += [start + segment for segment in pruner.segments()]
    pairs = [(mask, site.original) for pruner in pruners for mask, site in pruner.pairs()]
    kept = torch.cat([pruner.kept_on_device() for pruner in pruners])
    selector.select_(pairs, kept, segments, pruners[0].rank, stacked)


def prune_(model: PreTrainedModel, method: Method, schedule: Schedule, seed: int = 0) -> WeightPruner:
    """Put masks on all prunable matrices of a model, in place, and return what moves them.

    >>> model = bermo.BermoForSequenceClassification.from_backbone("box")
    >>> schedule = bermo.CubicSchedule(total_steps=10, warmup_steps=1)
    >>> pruner = bermo.prune_(model, bermo.Magnitude(density=0.1), schedule)
    >>> for _ in range(10):  # in training after each step of the optimiser
    ...     pruner.step()
    >>> round(pruner.density, 3)
    0.1
    """
    if not isinstance(model, PreTrainedModel):
        raise BermoError(f"prune_ takes a model of transformers, but got {type(model).__name__}.")
    return WeightPruner(model, method, schedule, seed)


def _attach_(site: Site, method: Method) -> Mask:
    if is_masked(site.module, site.parameter):
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
    attach_mask_(site.module, mask, site.parameter)
    return mask


def _num_kept(mask: Mask) -> Tensor:
    return mask.mask.sum() * math.prod(mask.blocks.size)
