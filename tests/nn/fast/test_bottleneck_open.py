"""What the attention between bottlenecks reads, by kernels in Triton's interpreter, equals its twin."""

from typing import Any

import pytest
import torch
from torch import Tensor

opening = pytest.importorskip("bermo.nn.fast.bottleneck_open", reason="needs Triton")
bottleneck = pytest.importorskip("bermo.nn.fast.bottleneck")
HIDDEN = 24


def layers_of(size: int, dtype: torch.dtype, is_joined: bool = False) -> list[Any]:
    """Linear layers and scales, all leaves; matrices of one shape are neighbours in memory or not."""
    torch.manual_seed(1)

    def leaves(count: int, *shape: int) -> list[Tensor]:
        whole = (torch.randn(count, *shape) / 3).to(dtype)
        parts = whole.unbind() if is_joined else [one.clone() for one in whole]
        return [one.detach().requires_grad_() for one in parts]

    def linears(count: int, width: int) -> Any:
        return bottleneck.Linears(leaves(count, size, width), leaves(count, size))

    scales = [
        bottleneck.Scaled(*(one.requires_grad_() for one in torch.randn(2, size).unbind())) for _ in range(2)
    ]
    return [linears(3, HIDDEN), linears(2, size), *scales]


def all_leaves(given: list[Any]) -> list[Tensor]:
    wide, pair, *scales = given
    found = [*wide.weights, *wide.biases, *pair.weights, *pair.biases]
    return [*found, *(one for scale in scales for one in (scale.scale, scale.shift))]


def inputs_of(rows: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    x = torch.randn(1, rows, HIDDEN)
    return x.to(dtype, copy=True).requires_grad_(), x.requires_grad_()


def outputs_of(one: Any) -> list[Tensor]:
    return [one.q, one.k, one.v, one.narrow, one.shared, one.x]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "size", "is_joined"), [(19, 70, True), (3, 8, False)])
def test_outputs_and_gradients_equal_the_twin(
    rows: int, size: int, is_joined: bool, dtype: torch.dtype
) -> None:
    half, x = inputs_of(rows, dtype)
    layers = layers_of(size, dtype, is_joined)
    fast = outputs_of(opening.opened(half, x, *layers))
    assert [one.dtype for one in fast] == [dtype] * 3 + [torch.float32, dtype, torch.float32]
    slow_half, slow_x = inputs_of(rows, dtype)
    slow_layers = layers_of(size, dtype)
    slow = outputs_of(opening.opened_twin(slow_half, slow_x, *slow_layers))
    # The interpreter cuts bits off where a GPU rounds.
    largest = 2e-2 if dtype == torch.bfloat16 else 1e-5
    for one, other in zip(fast, slow, strict=True):
        assert (one - other).norm() < largest * other.norm()
    grads = [torch.randn_like(one) for one in slow]
    actual = torch.autograd.grad(fast, [half, x, *all_leaves(layers)], grads)
    expected = torch.autograd.grad(slow, [slow_half, slow_x, *all_leaves(slow_layers)], grads)
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype == other.dtype
        assert (one.float() - other.float()).norm() < largest * other.float().norm()


def test_outputs_that_nobody_reads_have_no_gradient() -> None:
    half, x = inputs_of(3, torch.float32)
    layers = layers_of(8, torch.float32)
    one = opening.opened(half, x, *layers)
    (one.v.sum() + one.x.sum()).backward()
    assert torch.equal(x.grad, torch.ones_like(x))
    value, *others = layers[0].weights
    assert value.grad.abs().sum() > 0
    assert all(other.grad.abs().sum() == 0 for other in others)


def test_gradients_of_matrices_are_written_to_their_targets() -> None:
    half, x = inputs_of(3, torch.float32)
    wide, pair, *scales = layers_of(8, torch.float32)
    targets = torch.empty(24, HIDDEN), torch.empty(16, 8)
    wide = bottleneck.Linears(wide.weights, wide.biases, targets[0])
    pair = bottleneck.Linears(pair.weights, pair.biases, targets[1])
    one = opening.opened(half, x, wide, pair, *scales)
    sum(output.square().sum() for output in (one.q, one.k, one.v, one.narrow)).backward()
    for linears, target in zip((wide, pair), targets, strict=True):
        assert torch.equal(torch.cat([weight.grad for weight in linears.weights]), target)
