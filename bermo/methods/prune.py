"""Fine-pruning as a method: a spec -> masks, a hook that moves and records them, a loss with a penalty."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from transformers import PreTrainedModel

from bermo.methods.checks import make_method
from bermo.methods.rewind import Rewind
from bermo.pruning.criteria import Proximal
from bermo.pruning.proximal import ProximalPruner
from bermo.pruning.pruner import Pruner
from bermo.pruning.schedule import CubicSchedule, RoundSchedule, Schedule
from bermo.pruning.units import prune_units_
from bermo.pruning.weights import prune_
from bermo.spec import PruneSpec
from bermo.training.job import Batch, ModelCall, Objective

WARMUP_SHARE = 0.1
MISSED = 0.2
"""Relative distance from the wanted density from which on the user is warned."""


def make_schedule(spec: PruneSpec, num_steps: int) -> Schedule:
    """Return the cubic schedule over a training of so many steps, or that of rounds."""
    if spec.rewind is not None:
        return RoundSchedule(total_steps=num_steps, rounds=spec.rewind)
    warmup = spec.warmup_steps
    if warmup is None:
        warmup = math.floor(WARMUP_SHARE * num_steps)
    # Masks are set before a step: without a final warm-up the last step, T − 1, has the final value.
    is_open = spec.final_warmup * warmup == 0 and num_steps > 1
    return CubicSchedule(
        total_steps=num_steps - 1 if is_open else num_steps,
        warmup_steps=warmup,
        initial_warmup=spec.initial_warmup,
        final_warmup=spec.final_warmup,
    )


def start_pruning_(model: PreTrainedModel, spec: PruneSpec, num_steps: int, seed: int) -> Pruner:
    """Put the masks of a spec on a model."""
    method, schedule = make_method(spec), make_schedule(spec, num_steps)
    if isinstance(method, Proximal):
        assert isinstance(schedule, CubicSchedule), "rounds belong to magnitude"
        return ProximalPruner(model, method, schedule)
    if spec.method == "heads-and-neurons" or spec.method == "layers":
        return prune_units_(model, method, schedule, seed, spec.method)
    return prune_(model, method, schedule, seed)


class PrunedLoss:
    """Another objective's loss plus the masks' penalty."""

    def __init__(self, objective: Objective, penalty: Callable[[], Tensor | float]) -> None:
        self.objective, self.penalty = objective, penalty

    @property
    def call(self) -> ModelCall:
        return self.objective.call

    def count(self, batch: Batch) -> int:
        return self.objective.count(batch)

    def __call__(self, outputs: Any, batch: Batch) -> Tensor:
        return self.objective(outputs, batch) + self.penalty()


class PruneHook:
    """Sets the masks before each step, and records density, kept shares and scores."""

    def __init__(self, pruner: Pruner, rewind: Rewind | None = None) -> None:
        self.pruner, self.rewind = pruner, rewind
        self.is_turn = False

    def begin(self, optimizer: Optimizer) -> None:
        self.pruner.watch(optimizer)
        if self.rewind is not None:
            self.rewind.optimizer = optimizer

    def plan(self, step: int) -> None:
        self.is_turn = self.rewind is not None and step in self.rewind.jumps
        if self.rewind is None or self.is_turn:
            self.pruner.plan(step)

    def apply(self) -> None:
        if self.rewind is None:
            self.pruner.apply()
        elif self.is_turn:
            self.rewind.turn_(self.pruner)

    def generators(self) -> list[torch.Generator]:
        return self.pruner.generators()

    def metrics(self) -> Mapping[str, float]:
        scores = {name: parameter.detach() for name, parameter in self.pruner.scores().items()}
        # Launched before the shares are read, for which the CPU waits until the device is done.
        spread = _means_and_deviations(list(scores.values()))
        shares = self.pruner.densities()
        kept = {f"kept/{name}": share for name, share in shares.items()}
        keys = [f"{what}/{name}" for what in ("score_mean", "score_std") for name in scores]
        return {
            "density": self.pruner.density_of(shares),
            **kept,
            **dict(zip(keys, spread.tolist(), strict=True)),
        }


def _means_and_deviations(tensors: Sequence[Tensor]) -> Tensor:
    """Return the means of tensors, then their standard deviations; all at once, for a single transfer."""
    means = [values.mean() for values in tensors]
    deviations = [values.std(correction=0) for values in tensors]
    return torch.stack(means + deviations) if tensors else torch.empty(0)


def kept_density(hooks: Iterable[object]) -> float:
    """Return the share kept of all weights that pruning can remove; 1 where nothing is pruned."""
    pruners = [hook.pruner for hook in hooks if isinstance(hook, PruneHook)]
    return pruners[0].density_of(pruners[0].densities()) if pruners else 1.0


def missed_density(spec: PruneSpec, hooks: Iterable[object]) -> str | None:
    """Say what share was kept where a penalty missed the wanted density; ranking criteria cannot miss it."""
    if spec.density is None or spec.method not in ("l0", "soft-movement"):
        return None
    kept = kept_density(hooks)
    if abs(kept / spec.density - 1) <= MISSED:
        return None
    return (
        f"keeps {kept:.1%} of the masked weights where {spec.density:.1%} was asked for:"
        " give it more steps (--epochs), or a --penalty."
    )
