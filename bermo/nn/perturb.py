"""Small changes of the word vectors that a model reads, in the direction that hurts it most.

x' = x + δ, δ = 0 at padding. N texts, T tokens, E units of a word vector.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

TINY = 1e-12


class Perturbation:
    """A forward hook of the word embeddings, which adds a δ inside `by`."""

    def __init__(self, embeddings: nn.Module) -> None:
        self.width = int(embeddings.weight.shape[1])  # type: ignore[index]
        self.delta_NTE: Tensor | None = None
        embeddings.register_forward_hook(self._add)

    def _add(self, module: nn.Module, args: tuple[Tensor, ...], vectors_NTE: Tensor) -> Tensor | None:
        return None if self.delta_NTE is None else vectors_NTE + self.delta_NTE

    @contextmanager
    def by(self, delta_NTE: Tensor) -> Iterator[None]:
        """Let the model read x + δ inside the block."""
        self.delta_NTE = delta_NTE
        try:
            yield
        finally:
            self.delta_NTE = None


def uniform(mask_NT: Tensor, width: int, magnitude: float) -> Tensor:
    """Draw δ from (−1, 1) · magnitude / √(numbers of the text): all texts' δ are of a like length."""
    mask_NT1 = mask_NT[..., None].float()
    draws_NTE = torch.empty(*mask_NT.shape, width, device=mask_NT.device).uniform_(-1, 1)
    numbers_N11 = mask_NT1.sum((1, 2), keepdim=True).clamp(min=1) * width
    return draws_NTE * mask_NT1 * magnitude / numbers_N11.sqrt()


def normal(mask_NT: Tensor, width: int, deviation: float) -> Tensor:
    """Draw δ from N(0, deviation²)."""
    return torch.randn(*mask_NT.shape, width, device=mask_NT.device) * deviation * mask_NT[..., None]


def ascend(delta_NTE: Tensor, grad_NTE: Tensor, step: float, radius: float = math.inf) -> Tensor:
    """Move each text's δ by `step` along its gradient, and back onto ‖δ‖ ≤ radius."""
    moved_NTE = delta_NTE + step * grad_NTE / _norms(grad_NTE)
    return moved_NTE * (radius / _norms(moved_NTE)).clamp(max=1)


def _norms(values_NTE: Tensor) -> Tensor:
    return values_NTE.square().sum((1, 2), keepdim=True).sqrt().clamp(min=TINY)
