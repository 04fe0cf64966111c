"""Linear layers with few launches, in Triton's interpreter on the CPU, equal torch's own."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from bermo.nn.fast.shadow import are_side_by_side

dense = pytest.importorskip("bermo.nn.fast.dense", reason="needs Triton")


def test_gelu_gives_torchs_gradient_and_the_bias_its_sum() -> None:
    torch.manual_seed(0)
    h = torch.randn(2, 35, 150, requires_grad=True)
    bias = torch.zeros(150, requires_grad=True)
    grad = torch.randn(2, 35, 150)
    out = dense.Gelu.apply(h, bias, False)
    torch.testing.assert_close(out, functional.gelu(h), rtol=1e-5, atol=1e-6)
    actual = torch.autograd.grad(out, (h, bias), grad)
    (expected,) = torch.autograd.grad(functional.gelu(h), h, grad)
    torch.testing.assert_close(actual[0], expected)
    torch.testing.assert_close(actual[1], expected.sum((0, 1)))


def leaves(shape: tuple[int, ...]) -> list[Tensor]:
    """Three leaves side by side in one storage."""
    flat = torch.randn(3 * shape[0], *shape[1:])
    return [part.detach().requires_grad_() for part in flat.chunk(3)]


@pytest.mark.parametrize("has_target", [False, True])
def test_three_layers_as_one_product_equal_three_products(has_target: bool) -> None:
    torch.manual_seed(0)
    weights, biases = leaves((130, 12)), leaves((130,))
    assert are_side_by_side(weights)
    assert not are_side_by_side([weights[0], weights[2], weights[1]])
    assert not are_side_by_side([torch.ones(2), torch.ones(2), torch.ones(2)])
    x = torch.randn(3, 13, 12, requires_grad=True)
    target = torch.full((390, 12), 7.0) if has_target else None
    fast = dense.Joined.apply(x, target, None, *weights, *biases)
    slow = [functional.linear(x, w, b) for w, b in zip(weights, biases, strict=True)]
    grads = [torch.randn(3, 13, 130) for _ in range(3)]
    inputs = (x, *weights, *biases)
    for a, b in zip(fast, slow, strict=True):
        torch.testing.assert_close(a, b)
    actual = torch.autograd.grad(fast, inputs, grads)
    expected = torch.autograd.grad(slow, inputs, grads)
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    if target is not None:
        torch.testing.assert_close(target, torch.cat(expected[1:4]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("num_groups", [1, 3])
def test_gelu_drops_the_same_numbers_both_ways(num_groups: int) -> None:
    torch.manual_seed(0)
    p, seed = 0.3, torch.tensor([11])
    h, bias = torch.randn(6, 30, 70).requires_grad_(), torch.randn(num_groups, 70).requires_grad_()
    adds = num_groups > 1
    values = h.view(num_groups, -1, 70) + (bias[:, None] if adds else 0.0)
    slow = functional.gelu(values).view_as(h)
    fast = dense.Gelu.apply(h, bias if adds else bias[0], adds, seed, p)
    is_kept = fast != 0
    assert (~is_kept).float().mean().item() == pytest.approx(p, abs=0.02)
    assert not is_kept.flatten(0, 1).float().mean(0).eq(1).any(), "each column is dropped somewhere"
    # The chance is a multiple of 2⁻¹⁶.
    wanted = slow * is_kept * (65536 / (65536 - round(p * 65536)))
    torch.testing.assert_close(fast, wanted)
    grad = torch.randn_like(fast)
    mine = torch.autograd.grad(fast, (h, bias), grad)
    of_h, *of_bias = torch.autograd.grad(wanted, (h, bias) if adds else (h,), grad)
    torch.testing.assert_close(mine[0], of_h, rtol=1e-4, atol=1e-6)
    total = of_bias[0] if adds else of_h.sum((0, 1))[None]
    torch.testing.assert_close(mine[1], total, rtol=1e-4, atol=1e-4)
    assert torch.equal(dense.Gelu.apply(h, None, False, seed, p), dense.Gelu.apply(h, None, False, seed, p))


def test_gelu_adds_a_bias_for_each_group_of_rows() -> None:
    torch.manual_seed(0)
    h = torch.randn(3 * 2, 5, 40, requires_grad=True)
    bias = torch.randn(3, 40, requires_grad=True)
    grad = torch.randn(6, 5, 40)
    slow = functional.gelu(h.view(3, -1, 40) + bias[:, None]).view_as(h)
    fast = dense.Gelu.apply(h, bias, True)
    torch.testing.assert_close(fast, slow)
    actual = torch.autograd.grad(fast, (h, bias), grad)
    for a, b in zip(actual, torch.autograd.grad(slow, (h, bias), grad), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("has_target", [False, True])
def test_stacked_layers_equal_each_models_own(has_target: bool) -> None:
    torch.manual_seed(0)
    weights, biases = leaves((2, 9, 6)), leaves((2, 9))
    x = torch.randn(2 * 3, 4, 6, requires_grad=True)
    inputs = (x, *weights, *biases)
    slow = [
        torch.cat([functional.linear(x[3 * n : 3 * n + 3], w[n], b[n]) for n in range(2)])
        for w, b in zip(weights, biases, strict=True)
    ]
    grads = [torch.randn(6, 4, 9) for _ in range(3)]
    expected = torch.autograd.grad(slow, inputs, grads)
    target = torch.zeros(6, 9, 6) if has_target else None
    three = dense.StackedThree.apply(x, target, *weights, *biases)
    targets = target.chunk(3) if target is not None else [None] * 3
    single = [dense.Stacked.apply(x, *wbp) for wbp in zip(weights, biases, targets, strict=True)]
    for fast in (three, single):
        for a, b in zip(fast, slow, strict=True):
            torch.testing.assert_close(a, b)
        for a, b in zip(torch.autograd.grad(fast, inputs, grads), expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
        if target is not None:
            torch.testing.assert_close(target, torch.cat(expected[1:4]), rtol=1e-5, atol=1e-5)
            target.zero_()
