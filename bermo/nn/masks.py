"""Masks over weights: y = x (M ⊙ W)ᵀ + b, as weight parametrizations. The bias is never masked.

    dL/dW = M ⊙ G            a pruned weight keeps its value and gets no gradient
    dL/dS = G ⊙ W            straight through, for every entry, so a pruned weight can come back by its score

    TopMask       no scores: S = |W|                        magnitude (Han et al. 2015)
    ScoreMask     learned S, M is set from outside          movement, soft movement (Sanh et al. 2020)
    HardConcrete  learned S, M = clamp(s(r − l) + l, 0, 1)  L0 (Louizos et al. 2018)

A mask may cover blocks of r × c weights, whole rows or whole columns: then one score, or the mean of |W|,
stands for the block. `top_mask` keeps exactly the asked number whatever the ties; among equals it keeps those
with the lowest index, so every process agrees.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

Rank: TypeAlias = Literal["sensitivity", "size", "score"]
# Up to so many scores torch.kthvalue is fast enough.
FEW = 4096
# Soft movement never prunes a matrix below this share, as the reference code of Sanh et al. (2020).
FLOOR = 0.005
# The hard-concrete distribution: l, r and β of Louizos et al. (2018).
L0_LEFT, L0_RIGHT, L0_BETA = -0.1, 1.1, 2 / 3
# Scores start where P(open) of the plain sigmoid is 0.9.
L0_START = 2.197
# Uniform draws stay this far from 0 and 1, where their logit is infinite.
L0_CLAMP = 1e-4


def top_mask(scores: Tensor, num_kept: int) -> Tensor:
    """Return a boolean mask over exactly `num_kept` of the highest scores; among equals the first ones."""
    flat = scores.detach().flatten()
    if num_kept <= 0 or num_kept >= len(flat):
        return torch.full_like(scores, num_kept > 0, dtype=torch.bool)
    if flat.device.type == "cpu" and flat.dtype == torch.float32 and len(flat) >= FEW:
        mask = _top_by_window(flat.numpy(), num_kept)
        if mask is not None:
            return torch.from_numpy(mask).view_as(scores)
    least = flat.kthvalue(len(flat) - num_kept + 1).values
    return _first_above(flat, least, num_kept).view_as(scores)


def _top_by_window(flat: npt.NDArray[np.float32], num_kept: int) -> npt.NDArray[np.bool_] | None:
    """`top_mask` of many scores on the CPU, without ordering all; None if the k-th is not in the window.

    A sample, every `FEW / 64`-th score, gives two values between which the k-th highest almost surely is;
    only the scores between them are ordered.
    """
    sample = np.sort(flat[:: FEW // 64])
    share = 1 - num_kept / len(flat)
    # Six standard deviations of a sample's quantile to each side.
    slack = int(6 * math.sqrt(len(sample) * share * (1 - share))) + 2
    middle = int(share * len(sample))
    low = sample[max(middle - slack, 0)] if middle >= slack else -np.inf
    high = sample[middle + slack] if middle + slack < len(sample) else np.inf
    over = flat > high
    missing = num_kept - np.count_nonzero(over)
    between = flat[np.flatnonzero((flat >= low) ^ over)]
    if not 0 < missing <= len(between):
        return None
    least = np.partition(between, len(between) - missing)[len(between) - missing]
    mask = flat >= least
    surplus = np.count_nonzero(mask) - num_kept
    if surplus:
        # Of the scores that equal the least one, the last are left out.
        mask[np.flatnonzero(flat == least)[-surplus:]] = False
    return mask


def top_masks(scores: Sequence[Tensor], kept: Sequence[int], is_global: bool) -> list[Tensor]:
    """Return masks that keep so many scores of each tensor, or of all of them together."""
    if not is_global:
        return [top_mask(item, number) for item, number in zip(scores, kept, strict=True)]
    flat = torch.cat([item.detach().flatten() for item in scores])
    return _split_like(top_mask(flat, kept[0]), scores)


def top_masks_at(scores: Sequence[Tensor], kept: Tensor, is_global: bool) -> list[Tensor]:
    """`top_masks` for numbers on the device, one for each tensor or for all: nothing waits for the CPU."""
    if not is_global:
        return [_top_at(item, kept[index]) for index, item in enumerate(scores)]
    flat = torch.cat([item.detach().flatten() for item in scores])
    return _split_like(_top_at(flat, kept[0]), scores)


def _top_at(scores: Tensor, kept: Tensor) -> Tensor:
    flat = scores.detach().flatten()
    last = (kept - 1).clamp(min=0).view(1)
    least = flat.sort(descending=True).values.gather(0, last)
    return (_first_above(flat, least, kept) & (kept > 0)).view_as(scores)


def _first_above(flat: Tensor, least: Tensor, num_kept: int | Tensor) -> Tensor:
    """All scores over the least one kept, and as many of its equals as are missing, those of lowest index."""
    above, equal = flat > least, flat == least
    return above | (equal & (equal.cumsum(0) <= num_kept - above.sum()))


def _split_like(flat: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    parts = flat.split([item.numel() for item in tensors])
    return [part.view_as(item) for part, item in zip(parts, tensors, strict=True)]


def soft_mask(scores: Tensor, threshold: Tensor) -> Tensor:
    """Return σ(S) > threshold, or the top half percent (and one) where fewer would be left."""
    mask = torch.sigmoid(scores.detach()) > threshold
    least = soft_floor(scores.numel())
    return mask if int(mask.sum()) >= least else top_mask(scores, least)


def soft_kept(scores: Sequence[Tensor], threshold: Tensor) -> Tensor:
    """How many scores of each tensor `soft_mask` keeps, on the device: the highest, since σ is monotonic."""
    over = [(torch.sigmoid(item.detach()) > threshold).sum() for item in scores]
    least = [soft_floor(item.numel()) for item in scores]
    return torch.stack([n.clamp(min=few) for n, few in zip(over, least, strict=True)])


def soft_floor(size: int) -> int:
    """The least number of weights that soft movement keeps of `size`."""
    return int(FLOOR * size) + 1


class Blocks:
    """How a weight is divided into blocks of r × c: `count` of them along each axis, `num` in all."""

    def __init__(self, shape: Sequence[int], block: tuple[int, int]) -> None:
        self.shape = tuple(shape)
        rows, columns = self.shape[0], math.prod(self.shape[1:])
        self.size = (block[0] or rows, block[1] or columns)
        if rows % self.size[0] or columns % self.size[1]:
            raise ValueError(f"{rows} × {columns} weights cannot be divided into blocks of {self.size}")
        self.count = (rows // self.size[0], columns // self.size[1])
        self.num = math.prod(self.count)

    def spread(self, values: Tensor) -> Tensor:
        """Give every weight the value of its block."""
        for axis, size in enumerate(self.size):
            if size > 1:
                values = values.repeat_interleave(size, axis)
        return values.view(self.shape)

    def gather(self, weight: Tensor) -> Tensor:
        """Return the mean of |W| over each block."""
        (rows, columns), (r, c) = self.count, self.size
        if r == c == 1:
            return weight.detach().abs().view(rows, columns)
        return weight.detach().abs().view(rows, r, columns, c).mean(dim=(1, 3))


class TopMask(nn.Module):
    """M ⊙ W with a mask that is set from outside; the scores are the weights' own sizes."""

    mask: Tensor
    copy: Tensor | None = None
    """M ⊙ W, computed once a step by a `Shadow`; in training it is read in place of the product."""
    is_copied = False
    """Whether what set the mask has also written the copy."""

    def __init__(self, weight: Tensor, block: tuple[int, int] = (1, 1)) -> None:
        super().__init__()
        self.blocks = Blocks(weight.shape, block)
        ones = torch.ones(self.blocks.count, dtype=torch.bool, device=weight.device)
        self.register_buffer("mask", ones)

    def forward(self, weight: Tensor) -> Tensor:
        if self.copy is not None and self.training:
            return self.copy
        return weight * self.blocks.spread(self.mask).to(weight.dtype)


class ScoreMask(nn.Module):
    """M ⊙ W with learned scores, one for each block; the mask is set from outside, they get its gradient."""

    mask: Tensor
    copy: Tensor | None = None
    """M ⊙ W, computed once a step by a `Shadow`; in training it is read in place of the product."""
    is_copied = False
    """Whether what set the mask has also written the copy."""
    penalty_size: Any = None
    """What computes the mean size of all masks of a model at once, if anything does (`nn.fast.penalty`)."""
    moment: Tensor | None = None
    """The mean square of the scores' gradients G ⊙ W, which the optimiser keeps and saves."""
    shift = 0.0

    def __init__(self, weight: Tensor, block: tuple[int, int] = (1, 1), from_magnitude: bool = False) -> None:
        super().__init__()
        self.blocks = Blocks(weight.shape, block)
        start = self.blocks.gather(weight) if from_magnitude else None
        count = self.blocks.count
        zeros = torch.zeros(count, dtype=weight.dtype, device=weight.device)
        self.scores = nn.Parameter(zeros if start is None else start.clone())
        self.register_buffer("mask", torch.ones(count, dtype=torch.bool, device=weight.device))

    def forward(self, weight: Tensor) -> Tensor:
        if self.copy is not None and self.training:
            return self.copy
        # Straight through: S − S is exactly 0, so the value is the mask's and the gradient goes to the
        # scores.
        mask = self.mask.to(self.scores.dtype) + (self.scores - self.scores.detach())
        return weight * self.blocks.spread(mask)

    def size_penalty(self, num_models: int = 1) -> Tensor:
        """Mean σ(S) of each model: what soft movement makes small."""
        return torch.sigmoid(self.scores).view(num_models, -1).mean(1)


class HardConcrete(nn.Module):
    """M ⊙ W, M = clamp(s(r − l) + l, 0, 1); s = σ((logit u + S)/β) in training, σ(S) after it.

    logit u is drawn once a step, so that all processes and all parts of a batch have the same mask.
    """

    noise: Tensor
    copy: Tensor | None = None
    """M ⊙ W, computed once a step by a `Shadow`; in training it is read in place of the product."""
    is_copied = False
    """Whether what set the mask has also written the copy."""
    penalty_size: Any = None
    shift = -L0_BETA * math.log(-L0_LEFT / L0_RIGHT)

    def __init__(self, weight: Tensor, block: tuple[int, int] = (1, 1)) -> None:
        super().__init__()
        self.blocks = Blocks(weight.shape, block)
        start = torch.full(self.blocks.count, L0_START, dtype=weight.dtype, device=weight.device)
        self.scores = nn.Parameter(start)
        self.register_buffer("noise", torch.zeros_like(start))

    @torch.no_grad()
    def draw_(self, generator: torch.Generator) -> None:
        """Draw u ~ uniform and keep logit u."""
        u = torch.rand(self.noise.shape, generator=generator, device=self.noise.device)
        self.noise.copy_(torch.logit(u.clamp(L0_CLAMP, 1 - L0_CLAMP)))

    def values(self) -> Tensor:
        """M, from 0 to 1; with noise in training."""
        logits = (self.noise + self.scores) / L0_BETA if self.training else self.scores
        return (torch.sigmoid(logits) * (L0_RIGHT - L0_LEFT) + L0_LEFT).clamp(0, 1)

    @property
    def mask(self) -> Tensor:
        """Which blocks are open after training."""
        return torch.sigmoid(self.scores.detach()) * (L0_RIGHT - L0_LEFT) + L0_LEFT > 0

    def forward(self, weight: Tensor) -> Tensor:
        if self.copy is not None and self.training:
            return self.copy
        return weight * self.blocks.spread(self.values())

    def size_penalty(self, num_models: int = 1) -> Tensor:
        """Mean σ(S − β ln(−l/r)) of each model: the chance that a weight is kept."""
        chance = torch.sigmoid(self.scores + self.shift)
        return chance.view(num_models, -1).mean(1)


Mask = TopMask | ScoreMask | HardConcrete


def importance(mask: Mask, weight: Tensor, rank: Rank = "score") -> Tensor:
    """What the blocks of a weight are ranked by: E[(G ⊙ W)²] · σ(S), |W| · σ(S) or S; without scores |W|."""
    if isinstance(mask, TopMask):
        return mask.blocks.gather(weight)
    if rank == "score":
        return mask.scores
    return factor(mask, weight, rank) * torch.sigmoid(mask.scores.detach())


def factor(mask: Mask, weight: Tensor, rank: Rank) -> Tensor:
    """What σ(S) is multiplied by: the size of the weights, or how much the loss feels them.

    Before the first step nothing is known of the loss, nothing is pruned either, and the size stands in.
    """
    moment = moment_of(mask, rank)
    return mask.blocks.gather(weight) if moment is None else moment.view(mask.blocks.count)


def moment_of(mask: Mask, rank: Rank) -> Tensor | None:
    """The moment that a mask is ranked by, if it is and there is one."""
    return mask.moment if rank == "sensitivity" and isinstance(mask, ScoreMask) else None
