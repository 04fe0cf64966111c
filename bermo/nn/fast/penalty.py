"""What is asked of the scores of all masks at once: their mean size for the penalty, soft movement's numbers, L0's noise.

    mean size = 1/K · Σ over K matrices of mean σ(S + shift)        shift: 0 (soft movement), −β ln(−l/r) (L0)
    dS = pull / (K n) · σ'(S + shift)                               pull: the loss's gradient by the mean size

On a graphics card each is a launch or two for all matrices; elsewhere torch does it, mask by mask. There `pull` stays one number a
model, and who writes the gradients of the scores down (`Shadow`, `DirectAdam`) adds the rest: no buffer is filled for it alone.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bermo.nn.fast.available import has_kernels
from bermo.nn.masks import L0_CLAMP, HardConcrete, ScoreMask, soft_floor, soft_kept

LENGTH = 2048  # scores a program; 8 a thread, which also holds what belongs to them


class Sizes:
    """The mean size of each model's masks, from one pass over the scores; all tensors must stay where they are."""

    def __init__(self, masks: Sequence[ScoreMask | HardConcrete], num_models: int = 1) -> None:
        from bermo.nn.fast.kernels import Chunks, addresses

        self.num_models, self.shift = num_models, masks[0].shift
        self.parameters: list[nn.Parameter] = [mask.scores for mask in masks]
        parts = self.cut(self.parameters)
        device = parts[0].device
        self.chunks = Chunks([part.numel() for part in parts], device, length=LENGTH)
        self.scores = addresses(parts)
        self.masks = None
        if not isinstance(masks[0], HardConcrete):
            self.masks = addresses(self.cut([mask.mask for mask in masks]))
            self.chunks.look_at(self.masks)
        self.chunks.look_at(self.scores)
        shares = [1 / (len(masks) * part.numel()) for part in parts]
        self.shares = torch.tensor(shares, dtype=torch.float32, device=device)
        self.pull = torch.zeros(num_models, device=device)
        self.total = sum(part.numel() for part in parts) // num_models
        self.kept = torch.zeros(num_models, device=device)
        self.is_used = False

    def cut(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Each model's own part of each tensor."""
        return [part for item in tensors for part in item.detach().view(self.num_models, -1)]

    def mean(self) -> Tensor:
        """The mean size of each model's masks; its gradient is added to `pull`."""
        self.is_used = True
        found: Tensor = _Mean.apply(self, *self.parameters)
        return found

    def density(self) -> Tensor:
        """The share that each model kept when the mean was last asked for."""
        return self.kept / self.total

    def read(self) -> Tensor:
        """Look at all scores once."""
        from bermo.nn.fast.gate_kernels import sum_sizes

        sums, counts = sum_sizes(self.chunks, self.scores, self.masks, self.shift)
        self.kept = counts.view(-1, self.num_models).sum(0)
        return (sums * self.shares).view(-1, self.num_models).sum(0)

    def add_grads_(self) -> None:
        """Add the penalty's part to gradients of scores that are written down."""
        for scores, share in zip(self.parameters, self.shares[:: self.num_models], strict=True):
            size = torch.sigmoid(scores.detach() + self.shift).view(self.num_models, -1)
            part = size * (1 - size) * (self.pull * share)[:, None]
            scores.grad = part.view_as(scores) + (0 if scores.grad is None else scores.grad)


class _Mean(torch.autograd.Function):
    """Gives the gradient by the mean to `Sizes.pull`, and none to the scores."""

    @staticmethod
    def forward(ctx: Any, sizes: Sizes, *scores: Tensor) -> Tensor:
        ctx.sizes = sizes
        return sizes.read()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        ctx.sizes.pull += grads[0]
        return (None,) * (1 + len(ctx.sizes.parameters))


def mean_size(masks: Sequence[ScoreMask | HardConcrete], num_models: int = 1) -> Tensor:
    """The mean size of each model's masks, by the way that their `Shadow` has set up or mask by mask."""
    sizes = masks[0].sizes
    if sizes is not None:
        found: Tensor = sizes.mean()
        return found
    return torch.stack([mask.size_penalty(num_models) for mask in masks]).mean(0)


class Scores:
    """Soft movement's numbers for all matrices, L0's noise for all matrices; tables are made again where something was moved."""

    def __init__(self) -> None:
        self.places: list[int] = []
        self.chunks: Any = None
        self.table: Any = None

    def kept(self, scores: Sequence[Tensor], threshold: Tensor) -> Tensor:
        """`soft_kept`, in two launches for all where kernels can do it."""
        if not self._has_kernels(scores):
            return soft_kept(scores, threshold)
        from bermo.nn.fast.gate_kernels import count_over

        self._find(scores)
        found = count_over(self.chunks, self.table, threshold)
        return torch.maximum(found, self.floors).to(torch.int64)

    def draw_(self, masks: Sequence[HardConcrete], generator: torch.Generator) -> None:
        """Draw u ~ uniform for all masks at once and keep logit u."""
        noises = [mask.noise for mask in masks]
        device = noises[0].device
        if self._has_kernels(noises):
            from bermo.nn.fast.gate_kernels import draw_noise_

            self._find(noises)
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

    def _find(self, tensors: Sequence[Tensor]) -> None:
        places = [item.data_ptr() for item in tensors]
        if places == self.places:
            return
        from bermo.nn.fast.kernels import Chunks, addresses

        sizes, device = [item.numel() for item in tensors], tensors[0].device
        self.places, self.chunks = places, Chunks(sizes, device, length=LENGTH)
        self.table = addresses([item.detach() for item in tensors])
        self.chunks.look_at(self.table)
        floors = [soft_floor(size) for size in sizes]
        self.floors = torch.tensor(floors, dtype=torch.int32, device=device)
