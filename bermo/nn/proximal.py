"""The proximal step of a reweighted L1 norm, and the mask of the zeros that it makes.

    prox(w) = sign(w) · max(|w| − t · α, 0)     minimises t · Σ α|x| + ½‖x − w‖²
    α = 1 / (|w| + ε)                           a small weight feels it more, a large one hardly

Without the loss in it, it is exact: no gradient of |w| fights that of the loss (Guo et al. 2019, RPP).
"""

import torch
from torch import Tensor

from bermo.nn.masks import TopMask

EPSILON = 1e-3
"""ε: small beside a trained weight, so that a zero is held by a force a hundred times that of the others."""


class ZeroMask(TopMask):
    """Which weights a proximal step left; in training the weights are read as they are, zeros among them,
    so that a zero has a gradient and can come back, until the mask is fixed.
    """

    pull: Tensor
    """α of each weight."""
    is_fixed = False

    def __init__(self, weight: Tensor) -> None:
        super().__init__(weight)
        self.register_buffer("pull", pull_of(weight))

    def forward(self, weight: Tensor) -> Tensor:
        return weight if self.training and not self.is_fixed else super().forward(weight)


def pull_of(weight: Tensor) -> Tensor:
    """Return α = 1 / (|w| + ε)."""
    return 1 / (weight.detach().abs() + EPSILON)


@torch.no_grad()
def proximal_(weight: Tensor, pull: Tensor, threshold: Tensor) -> None:
    """Take the proximal step of threshold · Σ α|w| in place."""
    weight.copy_(weight.sign() * (weight.abs() - threshold * pull).clamp(min=0))
