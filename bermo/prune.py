"""Fine-pruning: masks on an encoder's matrices that close on a cubic schedule while it is trained.

pruner = prune_(model, Movement(density=0.1), CubicSchedule(total_steps=…, warmup_steps=…))
loss = model(**batch).loss + pruner.penalty(); loss.backward(); optimizer.step(); pruner.step()
fold_(model)      masks become zeros, an ordinary model again, to the bit
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from transformers import PreTrainedModel, TrainerCallback

from bermo.errors import BermoError
from bermo.nn.gates import Follower
from bermo.nn.masks import (
    HardConcrete,
    Mask,
    ScoreMask,
    TopMask,
    importance,
    soft_mask,
    top_masks,
)
from bermo.schedule import CubicSchedule
from bermo.sites import Site, layers_of, prunable_sites

Scope = Literal["matrix", "global"]


@dataclass(frozen=True, kw_only=True)
class Magnitude:
    """Keep the largest weights."""

    density: float
    scope: Scope = "matrix"
    block: tuple[int, int] = (1, 1)


@dataclass(frozen=True, kw_only=True)
class Movement:
    """Keep the weights whose learned scores are highest; scores start at zero, or at |W|."""

    density: float
    scope: Scope = "matrix"
    block: tuple[int, int] = (1, 1)
    start: Literal["zeros", "magnitude"] = "zeros"


@dataclass(frozen=True, kw_only=True)
class SoftMovement:
    """Keep σ(S) > τ, with a penalty λ·mean σ(S); or, without λ, the penalty that leads to a density."""

    penalty: float | None = None
    density: float | None = None
    threshold: float = 0.1
    block: tuple[int, int] = (1, 1)


@dataclass(frozen=True, kw_only=True)
class L0:
    """Hard-concrete gates with a penalty λ·mean P(open); or, without λ, the penalty that leads to a density."""

    penalty: float | None = None
    density: float | None = None
    block: tuple[int, int] = (1, 1)


Method = Magnitude | Movement | SoftMovement | L0


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


class Pruner:
    """The masks of a model under one method and one schedule. `at` sets them for a step; it keeps no other state."""

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
        self.at(0)

    @staticmethod
    def check(method: Method) -> None:
        """Refuse a method whose numbers make no sense."""
        density = method.density
        if density is not None and not 0 < density <= 1:
            raise BermoError(f"density is the share kept, over 0 and at most 1, but got {density}.")
        if isinstance(method, SoftMovement | L0) and (method.penalty is None) == (density is None):
            raise BermoError(
                f"{type(method).__name__} takes a penalty or a density to aim at, one of the two."
            )
        if min(method.block) < 0:
            raise BermoError(f"block is rows,columns, 0 for all of them, but got {method.block}.")

    def step(self) -> None:
        """Move on to the next step of the schedule; call it after the optimiser's step."""
        self.at(self.num_steps + 1)

    @torch.no_grad()
    def at(self, step: int) -> None:
        """Set the masks to what they are at a step, from the scores as they stand."""
        self.num_steps = step
        method = self.method
        match method:
            case Magnitude() | Movement():
                density = self.schedule.value(step, 1.0, method.density)
                scores = [importance(mask, site.original) for mask, site in self._pairs()]
                found = top_masks(scores, density, method.scope == "global")
                torch._foreach_copy_([mask.mask for mask in self.masks], found)
            case SoftMovement():
                threshold = self.schedule.value(step, 0.0, method.threshold)
                for mask in self._scored():
                    mask.mask.copy_(soft_mask(mask.scores, threshold))
            case L0():
                self._draw(step)

    def penalty(self) -> Tensor:
        """What is added to the loss: λ(step) times the mean size of the masks; 0 for magnitude and movement."""
        method = self.method
        if not isinstance(method, SoftMovement | L0):
            return torch.zeros((), device=self.model.device)
        size = torch.stack([mask.size_penalty() for mask in self._scored()]).mean()
        if method.penalty is None:
            return self._multiplier(cast(float, method.density)) * size
        ramp = 1.0
        if isinstance(method, SoftMovement):
            ramp = self.schedule.value(self.num_steps, 0.0, method.threshold) / method.threshold
        return method.penalty * ramp * size

    @property
    def density(self) -> float:
        """The share of the prunable weights that is kept now."""
        kept = torch.stack([_kept(mask) for mask in self.masks]).sum().item()
        return kept / sum(site.original.numel() for site in self.sites)

    def densities(self) -> dict[str, float]:
        """The share kept at each site."""
        kept = torch.stack([_kept(mask) for mask in self.masks]).tolist()
        return {
            site.name: number / site.original.numel()
            for site, number in zip(self.sites, kept, strict=True)
        }

    def score_parameters(self) -> list[nn.Parameter]:
        """The learned scores, for a parameter group of their own (rate 1e-2, no decay)."""
        return [mask.scores for mask in self._scored()]

    def _pairs(self) -> Iterator[tuple[Mask, Site]]:
        return zip(self.masks, self.sites, strict=True)

    def _scored(self) -> list[ScoreMask | HardConcrete]:
        return [mask for mask in self.masks if not isinstance(mask, TopMask)]

    def _draw(self, step: int) -> None:
        device = self.sites[0].original.device
        generator = torch.Generator(device).manual_seed((self.seed << 32) + step)
        for mask in self.masks:
            if isinstance(mask, HardConcrete):
                mask.draw_(generator)

    def _multiplier(self, target: float) -> float:
        """λ that pulls the density to a target: proportional to the relative excess, negative below the target.

        This is the gradient of a quadratic penalty (an augmented Lagrangian whose multiplier is left at zero), so
        there is no state to save, and a density that fell too low comes back.
        """
        wanted = self.schedule.value(self.num_steps, 1.0, target)
        excess = (self.density - wanted) / wanted
        return PULL * max(-1.0, min(1.0, excess))


PULL = 1000.0  # λ at an excess of 100 %; the paper's λ lie between 45 and 500


def prune_(
    model: PreTrainedModel, method: Method, schedule: CubicSchedule, seed: int = 0
) -> Pruner:
    """Put masks on all prunable matrices of a model, in place, and return what moves them."""
    return Pruner(model, method, schedule, seed)


@torch.no_grad()
def fold_(model: nn.Module) -> None:
    """Write the masks into the weights as zeros and take them off, in place; outputs stay the same to the bit."""
    was_training = model.training
    model.eval()  # L0 folds the gates that evaluation uses
    for module, name in list(_masked(model)):
        parametrize.remove_parametrizations(module, name, leave_parametrized=True)
    model.train(was_training)


@torch.no_grad()
def folded_state(model: nn.Module) -> dict[str, Tensor]:
    """Return the state of a model as `fold_` would leave it, without changing the model.

    A copy could not be folded: it shares its classes with the model, and folding edits them.
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
    scores = {id(p) for name, p in model.named_parameters() if ".parametrizations." in name and name.endswith(".scores")}  # fmt: skip
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


class PruningCallback(TrainerCallback):
    """Moves the masks inside transformers.Trainer, and adds the penalty's gradient before each of its steps.

    Give the scores their own rate: `optimizers=(torch.optim.AdamW([{"params": pruner.score_parameters(), "lr": 1e-2,
    "weight_decay": 0.0}, …]), None)`. The penalty's gradient comes after Trainer has clipped.
    """

    def __init__(self, pruner: Pruner) -> None:
        self.pruner = pruner

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        penalty = self.pruner.penalty()
        if penalty.requires_grad:
            penalty.backward()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.pruner.step()


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


def has_masks(model: nn.Module) -> bool:
    """Tell whether a model has masks that are not folded."""
    return next(_masked(model), None) is not None


def _masked(model: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    for module in model.modules():
        yield from _masked_here(module)


def _masked_here(module: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    if parametrize.is_parametrized(module):
        for name, masks in cast(nn.ModuleDict, module.parametrizations).items():
            if isinstance(
                cast(nn.ModuleList, masks)[0], TopMask | ScoreMask | HardConcrete | Follower
            ):
                yield module, name
