"""Copies that the forward pass reads in place of the matrices: masked, in the working dtype, made once a step.

    W̃ = M ⊙ W                      before the forward pass, for all matrices in one pass
    dW = M ⊙ G,  dS = G ⊙ W         after the backward pass, from the gradient G of W̃, in one pass

The same numbers come out as from the masks' own forward and backward, to the bit. On a graphics card Triton does each
pass in one launch; elsewhere a loop in plain torch does, which is also their reference.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from functools import cache

import torch
from torch import Tensor, nn

from bermo.nn.masks import ScoreMask, TopMask


@cache
def has_kernels() -> bool:
    """Tell whether Triton is there to write kernels with."""
    return importlib.util.find_spec("triton") is not None


class Shadow:
    """The copies of masked and of plain weights, `refresh` before and `collect` after each pass through the model."""

    def __init__(
        self,
        masked: Sequence[tuple[TopMask | ScoreMask, nn.Parameter]],
        plain: Mapping[str, nn.Parameter],
        dtype: torch.dtype,
    ) -> None:
        self.masked, self.dtype = list(masked), dtype
        self.sources: list[Tensor] = list(plain.values())
        self.plain = {name: _copy(weight, dtype) for name, weight in plain.items()}
        for mask, weight in self.masked:
            mask.copy = _copy(weight, dtype)
        weights = [weight for _, weight in self.masked]
        self.has_kernels = bool(weights) and weights[0].is_cuda and has_kernels()
        if self.has_kernels:
            from bermo.nn.kernels import Chunks, addresses

            self.chunks = Chunks([weight.numel() for weight in weights], weights[0].device)
            self.weights = addresses([weight.detach() for weight in weights])
            self.masks = addresses([mask.mask for mask, _ in self.masked])
            self.copies = addresses([_given(mask.copy).detach() for mask, _ in self.masked])

    @torch.no_grad()
    def refresh(self) -> None:
        """Make the copies anew from the weights and masks as they stand."""
        if self.sources:
            torch._foreach_copy_([copy.detach() for copy in self.plain.values()], self.sources)
        if self.has_kernels:
            from bermo.nn.kernels import mask_copy_

            mask_copy_(self.chunks, self.weights, self.masks, self.copies, self._is_half())
            return
        for mask, weight in self.masked:
            _given(mask.copy).copy_(weight * mask.mask.view_as(weight))

    @torch.no_grad()
    def collect(self) -> None:
        """Turn the copies' gradients into those of weights and scores."""
        for weight, copy in zip(self.sources, self.plain.values(), strict=True):
            if copy.grad is not None:
                weight.grad = torch.empty_like(weight)
        found = [(w, c) for w, c in zip(self.sources, self.plain.values(), strict=True) if c.grad is not None]  # fmt: skip
        if found:
            torch._foreach_copy_([_given(w.grad) for w, _ in found], [_given(c.grad) for _, c in found])  # fmt: skip
        if self.masked:
            self._collect_masked()
        for copy in (*self.plain.values(), *(_given(mask.copy) for mask, _ in self.masked)):
            copy.grad = None

    def close(self) -> None:
        """Let the masks compute for themselves again."""
        for mask, _ in self.masked:
            mask.copy = None

    def _collect_masked(self) -> None:
        grads = [_given(_given(mask.copy).grad) for mask, _ in self.masked]
        added = [mask.scores.grad for mask, _ in self.masked if isinstance(mask, ScoreMask)]
        if self.has_kernels:
            self._collect_by_kernels(grads)
        else:
            for (mask, weight), grad in zip(self.masked, grads, strict=True):
                wide = grad.to(weight.dtype)
                weight.grad = wide * mask.mask.view_as(weight)
                if isinstance(mask, ScoreMask):
                    mask.scores.grad = (wide * weight).view_as(mask.scores)
        if added and added[0] is not None:  # the penalty's gradient came before
            new = [_given(mask.scores.grad) for mask, _ in self.masked if isinstance(mask, ScoreMask)]  # fmt: skip
            torch._foreach_add_(new, [_given(grad) for grad in added])

    def _collect_by_kernels(self, grads: list[Tensor]) -> None:
        from bermo.nn.kernels import mask_grads

        is_scored = isinstance(self.masked[0][0], ScoreMask)
        of_weights, of_scores = mask_grads(self.chunks, self.weights, self.masks, grads, is_scored)
        for (_, weight), grad in zip(self.masked, of_weights, strict=True):
            weight.grad = grad.view_as(weight)
        for (mask, _), grad in zip(self.masked, of_scores, strict=bool(of_scores)):
            assert isinstance(mask, ScoreMask)
            mask.scores.grad = grad.view_as(mask.scores)

    def _is_half(self) -> bool:
        return self.dtype == torch.bfloat16


def _copy(weight: nn.Parameter, dtype: torch.dtype) -> Tensor:
    """An empty leaf of the same shape, contiguous, that takes gradients."""
    return torch.empty(weight.shape, dtype=dtype, device=weight.device).requires_grad_()


def _given(value: Tensor | None) -> Tensor:
    assert value is not None
    return value
