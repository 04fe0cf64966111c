"""What the penalised criteria compute from the scores of all masks at once.

    mean size = 1/K · Σ over K matrices of mean σ(S + shift)        shift: 0 (soft movement), −β ln(−l/r) (L0)
    dS = g / (K n) · σ'(S + shift)                                  g: the loss's gradient by the mean size

`PenaltySize` gives the mean size that the penalty multiplies, `ScoreKernels` soft movement's kept numbers and
L0's noise. On a GPU each is a launch or two for all matrices; elsewhere torch computes it mask by mask.
On a GPU g stays one number for each model, and whatever writes the gradients of the scores (`Shadow`,
`DirectAdam`) adds dS to them, so that dS needs no buffer of its own.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bermo.nn.fast.available import has_kernels
from bermo.nn.masks import L0_CLAMP, HardConcrete, ScoreMask, soft_floor, soft_kept

# Scores of one program: 8 for each thread, which also holds what belongs to them.
LENGTH = 2048


class PenaltySize:
    """The mean size of each model's masks, from one pass over the scores; no tensor may be moved."""

    def __init__(self, masks: Sequence[ScoreMask | HardConcrete], num_models: int = 1) -> None:
        from bermo.nn.fast.kernels import Chunks, addresses

        self.num_models, self.shift = num_models, masks[0].shift
        self.parameters: list[nn.Parameter] = [mask.scores for mask in masks]
        parts = self.split(self.parameters)
        device = parts[0].device
        self.chunks = Chunks([part.numel() for part in parts], device, length=LENGTH)
        self.scores = addresses(parts)
        self.masks = None
        if not isinstance(masks[0], HardConcrete):
            self.masks = addresses(self.split([mask.mask for mask in masks]))
            self.chunks.check_alignment(self.masks)
        self.chunks.check_alignment(self.scores)
        shares = [1 / (len(masks) * part.numel()) for part in parts]
        self.shares = torch.tensor(shares, dtype=torch.float32, device=device)
        self.grad = torch.zeros(num_models, device=device)
        self.total = sum(part.numel() for part in parts) // num_models
        self.kept = torch.zeros(num_models, device=device)
        self.is_used = False

    def split(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Each model's own part of each tensor."""
        return [part for item in tensors for part in item.detach().view(self.num_models, -1)]

    def mean(self) -> Tensor:
        """The mean size of each model's masks; its gradient is added to `grad`."""
        self.is_used = True
        mean: Tensor = _Mean.apply(self, *self.parameters)
        return mean

    def density(self) -> Tensor:
        """The share that each model kept when the mean was last computed."""
        return self.kept / self.total

    def compute(self) -> Tensor:
        """Read all scores once, for the mean sizes and the kept numbers."""
        from bermo.nn.fast.score_kernels import sum_sizes

        sums, counts = sum_sizes(self.chunks, self.scores, self.masks, self.shift)
        self.kept = counts.view(-1, self.num_models).sum(0)
        return (sums * self.shares).view(-1, self.num_models).sum(0)

    def add_grads_(self) -> None:
        """Add the penalty's dS to the gradients of the scores."""
        for scores, share in zip(self.parameters, self.shares[:: self.num_models], strict=True):
            size = torch.sigmoid(scores.detach() + self.shift).view(self.num_models, -1)
            part = size * (1 - size) * (self.grad * share)[:, None]
            scores.grad = part.view_as(scores) + (0 if scores.grad is None else scores.grad)


class _Mean(torch.autograd.Function):
    """Gives the gradient by the mean to `PenaltySize.grad`, and none to the scores."""

    @staticmethod
    def forward(ctx: Any, penalty_size: PenaltySize, *scores: Tensor) -> Tensor:
        ctx.penalty_size = penalty_size
        return penalty_size.compute()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        ctx.penalty_size.grad += grads[0]
        return (None,) * (1 + len(ctx.penalty_size.parameters))


def mean_size(masks: Sequence[ScoreMask | HardConcrete], num_models: int = 1) -> Tensor:
    """The mean size of each model's masks: by their `PenaltySize` where they have one, else mask by mask."""
    penalty_size = masks[0].penalty_size
    if penalty_size is not None:
        mean: Tensor = penalty_size.mean()
        return mean
    return torch.stack([mask.size_penalty(num_models) for mask in masks]).mean(0)


class ScoreKernels:
    """Soft movement's kept numbers and L0's noise, for all matrices at once.

    The tables of addresses are built at the first call, and again when a tensor was moved.
    """

    def __init__(self) -> None:
        self.addresses: list[int] = []
        self.chunks: Any = None
        self.table: Any = None

    def count_kept(self, scores: Sequence[Tensor], threshold: Tensor) -> Tensor:
        """`soft_kept`, in two launches for all tensors where kernels can do it."""
        if not self._has_kernels(scores):
            return soft_kept(scores, threshold)
        from bermo.nn.fast.score_kernels import count_over

        self._make_table(scores)
        counts = count_over(self.chunks, self.table, threshold)
        return torch.maximum(counts, self.floors).to(torch.int64)

    def draw_(self, masks: Sequence[HardConcrete], generator: torch.Generator) -> None:
        """Draw u ~ uniform for all masks at once and keep logit u."""
        noises = [mask.noise for mask in masks]
        device = noises[0].device
        if self._has_kernels(noises):
            from bermo.nn.fast.score_kernels import draw_noise_

            self._make_table(noises)
            drawn = torch.rand(self.chunks.total, generator=generator, device=device)
            draw_noise_(self.chunks, drawn, self.table)
            return
        sizes = [noise.numel() for noise in noises]
        drawn = torch.rand(sum(sizes), generator=generator, device=device)
        logits = torch.logit(drawn.clamp_(L0_CLAMP, 1 - L0_CLAMP)).split(sizes)
        for noise, part in zip(noises, logits, strict=True):
            noise.copy_(part.view_as(noise))

    def _has_kernels(self, tensors: Sequence[Tensor]) -> bool:
        is_plain = all(item.dtype == torch.float32 and item.is_contiguous() for item in tensors)
        return is_plain and tensors[0].is_cuda and has_kernels()

    def _make_table(self, tensors: Sequence[Tensor]) -> None:
        known = [item.data_ptr() for item in tensors]
        if known == self.addresses:
            return
        from bermo.nn.fast.kernels import Chunks, addresses

        sizes, device = [item.numel() for item in tensors], tensors[0].device
        self.addresses, self.chunks = known, Chunks(sizes, device, length=LENGTH)
        self.table = addresses([item.detach() for item in tensors])
        self.chunks.check_alignment(self.table)
        floors = [soft_floor(size) for size in sizes]
        self.floors = torch.tensor(floors, dtype=torch.int32, device=device)
