"""What all pruners have in common, so that hooks, losses and callbacks need not know what is masked."""

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bermo.nn.masks import Mask
from bermo.pruning.criteria import AnyMethod
from bermo.pruning.schedule import Schedule


class Pruner(Protocol):
    """The masks of a model under one criterion and one schedule: on single weights, or on whole units.

    loss = model(**batch).loss + pruner.penalty(); loss.backward(); optimizer.step(); pruner.step()

    The masks of a step are a function of the step, the scores and the seed. They are saved with the model.
    """

    @property
    def method(self) -> AnyMethod:
        """The criterion."""
        ...

    @property
    def schedule(self) -> Schedule: ...

    @property
    def num_steps(self) -> int:
        """The step that the masks are at."""
        ...

    def step(self) -> None:
        """Move on to the next step of the schedule; call it after the optimiser's step."""
        ...

    def at(self, step: int) -> None:
        """Set the masks to what they are at a step, from the scores as they are."""
        ...

    def plan(self, step: int) -> None:
        """The first half of `at`: put the numbers that a step needs on the device."""
        ...

    def apply(self) -> None:
        """The second half of `at`: set the masks as planned; on a GPU without waiting for the CPU."""
        ...

    def watch(self, optimizer: Optimizer) -> None:
        """Read from now on what this optimiser knows of the scores; call it once, before the first step."""
        ...

    def penalty(self) -> Tensor:
        """What is added to the loss: λ(step) times the mean size of the masks; 0 without a penalty."""
        ...

    @property
    def density(self) -> float:
        """The kept share of all maskable weights."""
        ...

    def densities(self) -> dict[str, float]:
        """The kept share by name: of each matrix, or of each group of units."""
        ...

    def density_of(self, densities: Mapping[str, float]) -> float:
        """The kept share of all maskable weights that these shares make up."""
        ...

    def scores(self) -> dict[str, nn.Parameter]:
        """The learned scores, by the same names; empty for a criterion that learns none."""
        ...

    def score_parameters(self) -> list[nn.Parameter]:
        """The learned scores, for a parameter group of their own (rate 1e-2, no decay)."""
        ...

    def simple_masks(self) -> tuple[tuple[Mask, nn.Parameter], ...]:
        """The masks over single float32 weights, with the weights, if all are such: for a `Shadow`."""
        ...

    def generators(self) -> list[torch.Generator]:
        """What draws random numbers in `apply`."""
        ...
