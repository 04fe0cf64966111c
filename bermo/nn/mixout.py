"""Mixout (Lee, Cho & Kang 2020): in training, some weights are those that the training started from.

    W' = u + M ⊙ (W − u) / (1 − p),   M ~ Bernoulli(1 − p) for each weight,   u = W at the start

Its mean is W, which evaluation uses; dropout of weights is the same with u = 0. The gradient is that of the
formula: M ⊙ G / (1 − p). (The authors' code draws one row of M for a whole matrix, and its gradient lacks the
factor.)
"""

import torch
from torch import Tensor, nn


class Mixout(nn.Module):
    """A weight parametrization; the mask of a step is drawn from outside."""

    start: Tensor
    is_trained: Tensor

    def __init__(self, weight: Tensor, chance: float) -> None:
        super().__init__()
        self.chance = chance
        self.register_buffer("start", weight.detach().clone(), persistent=False)
        self.register_buffer("is_trained", torch.ones_like(weight, dtype=torch.bool), persistent=False)

    def draw_(self, generator: torch.Generator) -> None:
        """Draw which weights are the trained ones."""
        self.is_trained.bernoulli_(1 - self.chance, generator=generator)

    def forward(self, weight: Tensor) -> Tensor:
        if not self.training:
            return weight
        moved = torch.where(self.is_trained, weight - self.start, 0)
        return self.start + moved / (1 - self.chance)
