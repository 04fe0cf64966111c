"""LoRA (Hu et al. 2022): a frozen matrix and a trained one of low rank, W' = W + α/r · B A.

A (r × inputs) starts at random, as a linear layer's weight does, and B (outputs × r) at zero, so that nothing
changes at the start. As a weight parametrization: what is saved is W', an ordinary matrix.
"""

import math

import torch
from torch import Tensor, nn

SCALE = 2.0
"""α / r, as with the usual α = 16 at rank 8."""


class LowRankUpdate(nn.Module):
    """A weight parametrization; of a weight with more than two axes, the first axis counts the rows."""

    def __init__(self, weight: Tensor, rank: int) -> None:
        super().__init__()
        rows, columns = weight.flatten(1).shape
        self.down = nn.Parameter(torch.empty(rank, columns, device=weight.device))
        self.up = nn.Parameter(torch.zeros(rows, rank, device=weight.device))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + SCALE * (self.up @ self.down).view_as(weight)
