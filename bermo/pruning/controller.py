"""The controller that finds the strength of a penalty, so that the kept share follows a target."""

from typing import cast

import torch
from torch import Tensor, nn

# λ at an excess of 100 %; the λ of Sanh et al. (2020) lie between 45 and 500.
PULL = 1000.0
# How much more an excess counts where the density is below its target.
BACK = 10.0
# Steps at a constant excess after which the multiplier has grown to what the excess alone gives.
MEMORY = 100

# What the three numbers of the state are.
MULTIPLIER, EXCESS, STEP = 0, 1, 2


class DensityController:
    """λ of an augmented Lagrangian, from e, the relative excess of the density over its target.

    λ = μ + (PULL + |μ|) · e            BACK · e in place of e below the target, where e is negative
    μ ← μ + (PULL + |μ|) · e / MEMORY   after each step

    The part with e answers at once; the multiplier μ is constant where the density stays on its target. μ
    grows like an exponential, because what holds a high score up does too: the penalty's gradient λ·σ'(S).
    In a short training μ has grown far too large by the time the scores arrive, since they move by at most
    a rate a step. So e counts BACK times below the target, and λ changes its sign at e = −1/BACK, however
    large μ is.

    The state is μ, the last e, and the step that it belongs to, (…, 3): one row for each model. It is a
    buffer of a module, "pull", so that it is saved and moved with the model; a captured step changes it in
    place, without waiting for the CPU. Nothing but the formulas stands here: no model, no mask, no
    schedule.
    """

    def __init__(self, holder: nn.Module, device: torch.device) -> None:
        """Start at μ = 0, with the state in a new buffer of `holder`."""
        holder.register_buffer("pull", torch.zeros(3, device=device))
        self.holder = holder

    @property
    def state(self) -> Tensor:
        """The three numbers; another tensor after the holder was moved."""
        return cast(Tensor, self.holder.pull)

    def strength(self, density: Tensor, target: Tensor) -> Tensor:
        """Return λ, and remember the excess; as often as wanted in a step."""
        excess = ((density - target) / target).clamp(-1, 1)
        state = self.state
        state[..., EXCESS] = excess
        multiplier = state[..., MULTIPLIER].clone()
        answer = torch.where(excess < 0, BACK * excess, excess)
        return multiplier + (PULL + multiplier.abs()) * answer

    def advance_(self, step: int) -> None:
        """Add the last excess to the multiplier; once a step, however often a step is planned."""
        state = self.state
        is_new = state[..., STEP] < step
        growth = (PULL + state[..., MULTIPLIER].abs()) / MEMORY
        state[..., MULTIPLIER] += growth * state[..., EXCESS] * is_new
        state[..., STEP] = step
