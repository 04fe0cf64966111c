"""Masks over whole units: those of `nn/masks.py`, with one score for a head, a neuron or a layer.

    W₂ → W₂ · diag(m)        m: the unit's mask on each of its columns; dL/dm = Σ G ⊙ W₂ over these columns

The matrices that feed a closed unit still compute while training, so that its score learns what opening the
unit would do. Where the model is evaluated, counted or folded, `Follower` closes them too.
"""

from collections.abc import Callable

from torch import Tensor, nn

from bermo.nn.masks import Blocks, HardConcrete, ScoreMask

UnitMask = ScoreMask | HardConcrete


class Follower(nn.Module):
    """M ⊙ W outside training, with the mask of another matrix; it has no state of its own."""

    def __init__(
        self,
        weight: Tensor,
        block: tuple[int, int],
        leader: UnitMask,
        arrange: Callable[[Tensor], Tensor],
    ) -> None:
        super().__init__()
        self.blocks, self.arrange = Blocks(weight.shape, block), arrange
        # In a list, so that the leader is not registered as a part of two matrices.
        self.leader = [leader]

    @property
    def mask(self) -> Tensor:
        """Which blocks are open: one value for each unit, in this matrix's order."""
        return self.arrange(self.leader[0].mask.flatten()).view(self.blocks.count)

    def forward(self, weight: Tensor) -> Tensor:
        if self.training:
            return weight
        return weight * self.blocks.spread(self.mask).to(weight.dtype)


def share_scores_(masks: list[UnitMask]) -> None:
    """Let all masks learn one score: their gradients add up in it."""
    for mask in masks[1:]:
        mask.scores = masks[0].scores
