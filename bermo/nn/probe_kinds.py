"""Probes: small classifiers on frozen vectors, one for each layer and penalty.

    linear   softmax(W x + b)
    hidden   softmax(V relu(W x + b) + c)                     one hidden layer
    mix      softmax(W (γ Σ_j s_j x_j) + b), s = softmax(a)   a learned mix of layers (Tenney et al. 2019)
    mixes of the layers 0 … l, one for each l, in the place of the penalties

Axes: L layers, B rows of a batch, D units, P penalties, C classes, H hidden units, K rows of a matrix.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

CLOSED = -1e4
"""The logit of a layer that a mix does not read: its share is exactly 0, and so is its gradient."""


class LinearProbes(nn.Module):
    """W x + b for every layer and penalty: (L, B, D) -> (L, P, B, C)."""

    def __init__(self, layers: int, units: int, penalties: int, classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(layers, units, penalties, classes))
        self.bias = nn.Parameter(torch.zeros(layers, 1, penalties, classes))

    def forward(self, x_LBD: Tensor) -> Tensor:
        return _product(x_LBD, self.weight, self.bias).transpose(2, 3)

    def squares(self) -> Tensor:
        """Return the sum of each probe's squared weights, (L, P)."""
        return self.weight.square().sum((1, 3))

    def add_penalty_gradients_(self, penalties_P: Tensor) -> None:
        """Add ∂/∂weight of λ ‖weight‖² to the gradient."""
        _add_penalty_(self.weight, penalties_P)

    def reads(self, active: Sequence[int]) -> Sequence[int]:
        """Return the layers that the active probes read: their own."""
        return active


class HiddenProbes(nn.Module):
    """V relu(W x + b) + c for every layer and penalty."""

    def __init__(
        self, layers: int, units: int, penalties: int, classes: int, hidden: int = 50, seed: int = 0
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        # One draw for all penalties, so that they differ in nothing else.
        first = torch.randn(layers, units, 1, hidden, generator=generator) * (2 / units) ** 0.5
        second = torch.randn(layers, hidden, 1, classes, generator=generator) * (1 / hidden) ** 0.5
        self.first = nn.Parameter(first.repeat(1, 1, penalties, 1))
        self.first_bias = nn.Parameter(torch.zeros(layers, 1, penalties, hidden))
        self.second = nn.Parameter(second.repeat(1, 1, penalties, 1))
        self.second_bias = nn.Parameter(torch.zeros(layers, 1, penalties, classes))

    def forward(self, x_LBD: Tensor) -> Tensor:
        hidden_LPHB = torch.relu(_product(x_LBD, self.first, self.first_bias))
        logits_LPCB = self.second.permute(0, 2, 3, 1) @ hidden_LPHB
        return (logits_LPCB + self.second_bias.permute(0, 2, 3, 1)).transpose(2, 3)

    def squares(self) -> Tensor:
        """Return the sum of each probe's squared weights, (L, P)."""
        return self.first.square().sum((1, 3)) + self.second.square().sum((1, 3))

    def add_penalty_gradients_(self, penalties_P: Tensor) -> None:
        """Add ∂/∂weight of λ ‖weight‖² to the gradients."""
        _add_penalty_(self.first, penalties_P)
        _add_penalty_(self.second, penalties_P)

    def reads(self, active: Sequence[int]) -> Sequence[int]:
        """Return the layers that the active probes read: their own."""
        return active


class _MixedLogits(torch.autograd.Function):
    """(Σ_l s_pl x_l) W_p for every p, with its gradients by s and W; frozen vectors x have none.

    Written down, a step takes half as long: the sums over rows are many small products in place of one of two
    long and thin matrices, and the memory of the mixed vectors is used again for their gradient.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, shares_PL: Tensor, x_LBD: Tensor, weight_DPC: Tensor) -> Tensor:
        mixed_PBD = torch.tensordot(shares_PL, x_LBD, 1)
        ctx.save_for_backward(x_LBD, weight_DPC, mixed_PBD)
        return torch.bmm(mixed_PBD, weight_DPC.transpose(0, 1))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_PBC: Tensor) -> tuple[Tensor, None, Tensor]:
        x_LBD, weight_DPC, mixed_PBD = ctx.saved_tensors
        by_weight_PCD = torch.bmm(gradient_PBC.transpose(1, 2), mixed_PBD)
        by_mixed_PBD = torch.bmm(gradient_PBC, weight_DPC.permute(1, 2, 0), out=mixed_PBD)
        by_shares_PL = torch.bmm(by_mixed_PBD.transpose(0, 1), x_LBD.permute(1, 2, 0)).sum(0)
        return by_shares_PL, None, by_weight_PCD.permute(2, 0, 1)


class MixProbes(nn.Module):
    """A linear probe on γ Σ_j softmax(a)_j x_j for every penalty; the layer axis of its outputs is 1."""

    def __init__(self, layers: int, units: int, penalties: int, classes: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(1, layers, penalties, 1))
        self.scale = nn.Parameter(torch.ones(1, 1, penalties, 1))
        self.linear = LinearProbes(1, units, penalties, classes)

    @property
    def weights(self) -> Tensor:
        """The share of each layer, (L, P)."""
        return self.logits.softmax(1)[0, :, :, 0]

    def forward(self, x_LBD: Tensor) -> Tensor:
        shares_PL = (self.weights * self.scale[0, 0].T).T
        logits_PBC = _MixedLogits.apply(shares_PL, x_LBD, self.linear.weight[0])
        return cast(Tensor, (logits_PBC + self.linear.bias[0].transpose(0, 1))[None])

    def squares(self) -> Tensor:
        """Return the sum of each probe's squared weights γW, (1, P); of W alone, γ would grow for ever."""
        return self.linear.squares() * self.scale[0, 0, :, 0].square()

    def add_penalty_gradients_(self, penalties_P: Tensor) -> None:
        """Add the derivatives of λ ‖γW‖² by W and γ to the gradients."""
        with torch.no_grad():
            scale_P = self.scale[0, 0, :, 0]
            _add_penalty_(self.linear.weight, penalties_P * scale_P.square())
            assert self.scale.grad is not None, "a penalty is added after the loss"
            self.scale.grad[0, 0, :, 0] += 2 * penalties_P * scale_P * self.linear.squares()[0]

    def reads(self, active: Sequence[int]) -> Sequence[int]:
        """Return the layers that are read: all."""
        return range(self.logits.shape[1])


def mixes_up_to_each(layers: int, units: int, classes: int) -> MixProbes:
    """Return one mix for each layer l, of the layers 0 … l; they take the places of penalties."""
    probes = MixProbes(layers, units, layers, classes)
    is_above_LP = torch.ones(layers, layers).tril(-1).bool()
    with torch.no_grad():
        probes.logits[0, :, :, 0].masked_fill_(is_above_LP, CLOSED)
    return probes


Probes: TypeAlias = LinearProbes | HiddenProbes | MixProbes
"""Weights are (L, ·, P, ·), so that a layer and a penalty select one probe's."""


@torch.no_grad()
def _add_penalty_(weight: nn.Parameter, penalties_P: Tensor) -> None:
    assert weight.grad is not None, "a penalty is added after the loss"
    weight.grad.addcmul_(weight, penalties_P[:, None], value=2)


def _product(x_LBD: Tensor, weight_LDPK: Tensor, bias_L1PK: Tensor) -> Tensor:
    """Multiply each layer's rows by the matrices of all its penalties at once: (L, P, K, B).

    Rows come last: with two classes, a softmax over neighbours in memory would be the slowest part of a step.
    """
    layers, _, penalties, size = weight_LDPK.shape
    weight_LKD = weight_LDPK.flatten(2).transpose(1, 2)
    bias_LK1 = bias_L1PK.flatten(2).transpose(1, 2)
    product = torch.baddbmm(bias_LK1, weight_LKD, x_LBD.transpose(1, 2))
    return product.view(layers, penalties, size, -1)
