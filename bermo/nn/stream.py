"""Layers mixed one by one while the encoder runs: running sums in place, no stack of activations.

    across   γ · Σ_j α_j (h_j − μ) / √(M₂/n + ε)   three sums: μ, M₂ over the layers, and the numerator
    others   γ · Σ_j α_j · norm(h_j)               one sum

Sums are kept in float32 or wider, and the result has the dtype of the last layer added.
"""

from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from bermo.errors import BermoError

Norm: TypeAlias = Literal["across", "within", "tensor"] | None


class Stream(Protocol):
    """Takes the layers in their order while the encoder runs; those that are not mixed are ignored."""

    def add(self, index: int, hidden_BTD: Tensor) -> None: ...

    def result(self) -> Tensor: ...


class AcrossStream:
    """γ · Σ_j α_j (h_j − μ) / √(M₂/n + ε), with μ, M₂ and the sum all moved by δ_k = h_k − μ_{k−1}.

    μ_k = μ_{k−1} + δ_k/k and M₂ += (1 − 1/k) δ_k² are Welford's; Σ_{j≤k} α_j (h_j − μ_k) grows by
    (α_k (1 − 1/k) − Σ_{j<k} α_j / k) δ_k. Only differences enter, so no large numbers cancel.
    """

    def __init__(self, layers: tuple[int, ...], weights_J: Tensor, scale: Tensor, eps: float) -> None:
        step_J = torch.arange(1, len(layers) + 1, device=weights_J.device)
        before_J = weights_J.cumsum(0) - weights_J
        self.gains = (weights_J * (1 - 1 / step_J) - before_J / step_J).unbind()
        self.layers, self.scale, self.eps = layers, scale, eps
        self.count = 0

    def add(self, index: int, hidden_BTD: Tensor) -> None:
        if index not in self.layers:
            return
        self.count += 1
        self.dtype = hidden_BTD.dtype
        if self.count == 1:
            self.mean_BTD = hidden_BTD.to(torch.promote_types(hidden_BTD.dtype, torch.float32), copy=True)
            self.squares_BTD = torch.zeros_like(self.mean_BTD)
            self.total_BTD = torch.zeros_like(self.mean_BTD)
            return
        change_BTD = hidden_BTD - self.mean_BTD
        self.mean_BTD.add_(change_BTD, alpha=1 / self.count)
        self.squares_BTD.addcmul_(change_BTD, change_BTD, value=1 - 1 / self.count)
        self.total_BTD.addcmul_(change_BTD, self.gains[self.count - 1])

    def result(self) -> Tensor:
        _check_complete(self.count, len(self.layers))
        spread_BTD = self.squares_BTD.div_(len(self.layers)).add_(self.eps).sqrt_()
        return self.total_BTD.div_(spread_BTD).mul_(self.scale).to(self.dtype)


class SumStream:
    """Σ_j w_j · norm(h_j) as one running sum."""

    def __init__(
        self, layers: tuple[int, ...], weights_J: Tensor, normalise: Callable[[Tensor], Tensor]
    ) -> None:
        self.weights = dict(zip(layers, weights_J, strict=True))
        self.normalise = normalise
        self.count = 0

    def add(self, index: int, hidden_BTD: Tensor) -> None:
        if index not in self.weights:
            return
        self.count += 1
        self.dtype = hidden_BTD.dtype
        normal_BTD = self.normalise(wide(hidden_BTD))
        if self.count == 1:
            self.total_BTD = normal_BTD * self.weights[index]
        else:
            self.total_BTD.addcmul_(normal_BTD, self.weights[index])

    def result(self) -> Tensor:
        _check_complete(self.count, len(self.weights))
        return self.total_BTD.to(self.dtype)


class KeepStream:
    """The chosen layers themselves, joined at the end."""

    def __init__(self, layers: tuple[int, ...], join: Callable[[list[Tensor]], Tensor]) -> None:
        self.layers, self.join = layers, join
        self.kept: dict[int, Tensor] = {}

    def add(self, index: int, hidden_BTD: Tensor) -> None:
        if index in self.layers:
            self.kept[index] = hidden_BTD

    def result(self) -> Tensor:
        _check_complete(len(self.kept), len(self.layers))
        return self.join([self.kept[index] for index in self.layers])


def standardise(hidden: Tensor, norm: Norm, attention_mask: Tensor | None, eps: float) -> Tensor:
    """Normalise one layer by itself: over its units, over all its unmasked elements, or not at all."""
    if norm is None:
        return hidden
    if norm == "within":
        return functional.layer_norm(hidden, hidden.shape[-1:], eps=eps)
    if attention_mask is None:
        variance, mean = torch.var_mean(hidden, correction=0)
        return (hidden - mean) * torch.rsqrt(variance + eps)
    real = attention_mask.bool()[..., None]
    count = (real.sum() * hidden.shape[-1]).clamp(min=1)
    # `where` and not a product: whatever padding holds, even NaN, must not reach the statistics.
    centred = hidden - torch.where(real, hidden, 0).sum() / count
    variance = torch.where(real, centred, 0).square().sum() / count
    return centred * torch.rsqrt(variance + eps)


def wide(hidden: Tensor) -> Tensor:
    """Return the tensor in float32 or wider."""
    return hidden.to(torch.promote_types(hidden.dtype, torch.float32))


def _check_complete(count: int, expected: int) -> None:
    if count != expected:
        raise BermoError(f"The stream mixes {expected} layers, but {count} were added.")
