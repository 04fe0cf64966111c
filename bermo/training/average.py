"""A running mean of the weights, which is scored and saved in their place.

    a ← d a + (1 − d) w before each step,   d = min(decay, (1 + t) / (1 + g + t)) at step t

The mean is a module of the model, so that it lies in every checkpoint. Polyak and Juditsky 1992; the rising
decay lets the weights of the start be forgotten: by decay 1 step t counts about t^(g − 1), so that the mean
reaches back over about t / g steps.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

NAME = "average"
FORGETTING = 9.0
"""g where the start is random: nearly all of the mean is of the last tenth of the steps."""


class Average(nn.Module):
    """The means of a model's trained weights, and the hook that keeps them."""

    share: Tensor

    def __init__(self, model: nn.Module, decay: float, forgetting: float) -> None:
        super().__init__()
        self.decay, self.forgetting = decay, forgetting
        self.weights = [weight for weight in model.parameters() if weight.requires_grad]
        self.register_buffer("share", torch.zeros(()))
        for index, weight in enumerate(self.weights):
            self.register_buffer(f"mean_{index}", weight.detach().clone())

    @property
    def means(self) -> list[Tensor]:
        """The mean of each weight."""
        return [self.get_buffer(f"mean_{index}") for index in range(len(self.weights))]

    def begin(self, optimizer: Optimizer) -> None:
        """Nothing is needed of the optimiser."""

    def plan(self, step: int) -> None:
        """Set how much of the weights goes into the mean."""
        self.share.fill_(1 - min(self.decay, (1 + step) / (1 + self.forgetting + step)))

    @torch.no_grad()
    def apply(self) -> None:  # type: ignore[override]
        """Move the means towards the weights."""
        for mean, weight in zip(self.means, self.weights, strict=True):
            mean.lerp_(weight, self.share)

    def generators(self) -> Sequence[torch.Generator]:
        return ()

    def metrics(self) -> Mapping[str, float]:
        return {}


def average_(model: nn.Module, decay: float = 1.0, forgetting: float = FORGETTING) -> Average:
    """Give a model the running means of its weights, in place."""
    average = Average(model, decay, forgetting)
    model.add_module(NAME, average)
    return average


@contextmanager
def averaged(model: nn.Module) -> Iterator[None]:
    """Put the means in the place of the weights inside the block, where the model has means."""
    average = getattr(model, NAME, None)
    if not isinstance(average, Average):
        yield
        return
    kept = [weight.detach().clone() for weight in average.weights]
    _copy_(average.weights, average.means)
    try:
        yield
    finally:
        _copy_(average.weights, kept)


@torch.no_grad()
def _copy_(weights: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    for weight, value in zip(weights, values, strict=True):
        weight.copy_(value)
