"""All behind the attention between bottlenecks, by kernels in Triton's interpreter, equals its twin."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

closing = pytest.importorskip("bermo.nn.fast.bottleneck_close", reason="needs Triton")
bottleneck = pytest.importorskip("bermo.nn.fast.bottleneck")
opening = pytest.importorskip("bermo.nn.fast.bottleneck_open")
HIDDEN, INNER = 36, 20


def layers_of(size: int, num: int, dtype: torch.dtype) -> Any:
    """The layers of so many feed-forward parts, all leaves."""
    torch.manual_seed(1)

    def linears(count: int, rows: int, columns: int) -> Any:
        weights = [(torch.randn(rows, columns) / columns**0.5).to(dtype) for _ in range(count)]
        biases = [torch.randn(rows).to(dtype) for _ in range(count)]
        return bottleneck.Linears(
            [one.requires_grad_() for one in weights], [one.requires_grad_() for one in biases]
        )

    def scaled(width: int) -> Any:
        return bottleneck.Scaled(torch.randn(width).requires_grad_(), torch.randn(width).requires_grad_())

    return closing.Closing(
        first=linears(1, size, size),
        last=linears(1, HIDDEN, size),
        ups=linears(num, INNER, size),
        downs=linears(num, size, INNER),
        scaled=[*(scaled(size) for _ in range(num + 1)), scaled(HIDDEN)],
    )


def all_leaves(layers: Any) -> list[Tensor]:
    linears = (layers.first, layers.last, layers.ups, layers.downs)
    found = [one for part in linears for one in (*part.weights, *part.biases)]
    return [*found, *(one for scale in layers.scaled for one in (scale.scale, scale.shift))]


def inputs_of(rows: int, size: int, dtype: torch.dtype) -> tuple[Tensor, Any, Tensor]:
    """The attention, what is before it, and the copy of x."""
    torch.manual_seed(0)
    seen = torch.randn(1, rows, size).to(dtype).requires_grad_()
    narrow = torch.randn(1, rows, size).requires_grad_()
    x = torch.randn(1, rows, HIDDEN).to(dtype).float().requires_grad_()
    return seen, opening.Opening(seen, seen, seen, narrow, seen, x), x.detach().to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "size", "num"), [(19, 70, 3), (3, 8, 1)])
def test_outputs_and_gradients_equal_the_twin(rows: int, size: int, num: int, dtype: torch.dtype) -> None:
    seen, one, half = inputs_of(rows, size, dtype)
    layers = layers_of(size, num, dtype)
    y, copy = closing.closed(seen, one, half, layers, torch.tensor([5]), 0.0)
    slow_seen, slow_one, _ = inputs_of(rows, size, dtype)
    slow_layers = layers_of(size, num, dtype)
    slow = closing.closed_twin(slow_seen, slow_one, slow_layers)
    is_half = dtype == torch.bfloat16
    assert (y.dtype, copy.dtype) == (torch.float32, dtype)
    assert (y - slow).norm() < (1e-2 if is_half else 1e-5) * slow.norm()
    torch.testing.assert_close(copy.float(), y, rtol=1e-2 if is_half else 0, atol=0)
    wide, other = torch.randn_like(slow), torch.randn_like(slow).to(dtype)
    given = [seen, one.narrow, one.x, *all_leaves(layers)]
    actual = torch.autograd.grad([y, copy], given, [wide, other])
    slow_given = [slow_seen, slow_one.narrow, slow_one.x, *all_leaves(slow_layers)]
    expected = torch.autograd.grad(slow, slow_given, wide + other.float())
    # The interpreter cuts bits off where a GPU rounds, and so some neurons are on one side of ReLU alone.
    for fast_grad, slow_grad in zip(actual, expected, strict=True):
        assert fast_grad.dtype == slow_grad.dtype
        gap = (fast_grad.float() - slow_grad.float()).norm()
        assert gap < (1e-1 if is_half else 1e-5) * slow_grad.float().norm()


@pytest.mark.parametrize("reads", ["y", "copy"])
def test_either_output_may_be_the_only_one_that_is_read(reads: str) -> None:
    grads = []
    for name in (reads, "y"):
        seen, one, half = inputs_of(5, 8, torch.float32)
        layers = layers_of(8, 2, torch.float32)
        y, copy = closing.closed(seen, one, half, layers, torch.tensor([5]), 0.0)
        (y if name == "y" else copy).square().sum().backward()
        grads.append([leaf.grad for leaf in (seen, one.narrow, one.x, *all_leaves(layers))])
    for mine, other in zip(*grads, strict=True):
        torch.testing.assert_close(mine, other)


def test_dropout_is_drawn_again_in_the_backward_pass() -> None:
    rows, p = 40, 0.3
    seen, one, half = inputs_of(rows, 8, torch.float32)
    layers = layers_of(8, 2, torch.float32)
    # The product before dropout is its bias alone, so the gradient of x's sum shows what is kept.
    layers.last.weights[0].data.zero_()
    y, _ = closing.closed(seen, one, half, layers, torch.tensor([7]), p)
    scale, shift = layers.scaled[-1].scale, layers.scaled[-1].shift
    kept = ((y - shift) / scale - one.x) / layers.last.biases[0]
    is_kept = kept > 0.5
    torch.testing.assert_close(kept, is_kept / (1 - p), rtol=1e-3, atol=1e-3)
    assert 0.2 < (~is_kept).float().mean() < 0.4
    y.sum().backward()
    torch.testing.assert_close(layers.last.biases[0].grad, (is_kept / (1 - p) * scale).sum((0, 1)))
    torch.testing.assert_close(one.x.grad, scale.expand_as(y))
    again, _ = closing.closed(seen, one, half, layers, torch.tensor([7]), p)
    other, _ = closing.closed(seen, one, half, layers, torch.tensor([8]), p)
    assert torch.equal(again, y)
    assert not torch.equal(other, y)


def test_gradients_of_matrices_are_written_to_their_targets() -> None:
    seen, one, half = inputs_of(3, 8, torch.float32)
    layers = layers_of(8, 2, torch.float32)
    names = ("first", "last", "ups", "downs")
    targets = {name: torch.cat([w.detach() for w in getattr(layers, name).weights]) for name in names}
    layers = replace(layers, **{n: replace(getattr(layers, n), target=t) for n, t in targets.items()})
    y, _ = closing.closed(seen, one, half, layers, torch.tensor([5]), 0.0)
    y.square().sum().backward()
    for name, target in targets.items():
        assert torch.equal(torch.cat([weight.grad for weight in getattr(layers, name).weights]), target)
