"""Iterative magnitude pruning with rewinding (IMP; Frankle and Carbin 2019, Chen et al. 2020 for BERT).

    train, prune the smallest weights that are left, set the encoder back to its start, and begin again

The head is not set back. A weight that is gone stays gone; masks change only between rounds.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bermo.models.encoder import BermoPreTrainedModel
from bermo.pruning.pruner import Pruner


class Rewind:
    """Prunes at the end of a round, and sets an encoder back to the weights that it was made with.

    A run that goes on makes its model anew before it reads its checkpoint, so the start is always the same.
    """

    def __init__(self, model: BermoPreTrainedModel, jumps: Sequence[int]) -> None:
        self.weights: list[nn.Parameter] = list(model.core.backbone.parameters())
        self.starts: list[Tensor] = [weight.detach().clone() for weight in self.weights]
        self.jumps = frozenset(jumps)
        self.optimizer: Optimizer | None = None

    @torch.no_grad()
    def turn_(self, pruner: Pruner) -> None:
        """End a round: choose among the weights that are left, then go back to the start."""
        for mask, weight in pruner.simple_masks():
            weight.mul_(mask.mask)
        pruner.apply()
        for mask, _ in pruner.simple_masks():
            # Of the weights that are now set back.
            mask.is_copied = False
        for weight, start in zip(self.weights, self.starts, strict=True):
            weight.copy_(start.to(weight.device))
            for value in self.optimizer.state.get(weight, {}).values() if self.optimizer is not None else ():
                if isinstance(value, Tensor):
                    value.zero_()
