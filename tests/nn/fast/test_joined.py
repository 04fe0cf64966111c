"""Joined products have the outputs and gradients of torch's own, also where they write to a buffer."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

ours = pytest.importorskip("bermo.nn.fast.joined", reason="needs Triton")


def neighbours(count: int, *shape: int) -> list[Tensor]:
    """Leaves that lie one behind the other in one storage."""
    return [part.detach().requires_grad_() for part in torch.randn(count, *shape).unbind()]


def apart(count: int, *shape: int) -> list[Tensor]:
    return [torch.randn(shape, requires_grad=True) for _ in range(count)]


@pytest.mark.parametrize("make", [neighbours, apart])
def test_tensors_side_by_side_are_one_and_get_their_own_gradients(make: Callable[..., list[Tensor]]) -> None:
    parts = make(3, 4, 2)
    whole = ours.side_by_side(parts)
    torch.testing.assert_close(whole, torch.cat(parts))
    assert (whole.data_ptr() == parts[0].data_ptr()) == (make is neighbours)
    grad = torch.randn_like(whole)
    for mine, theirs in zip(torch.autograd.grad(whole, parts, grad), grad.chunk(3), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("has_buffer", [True, False])
def test_tables_of_shared_matrices_add_their_gradients_to_the_tokens(has_buffer: bool) -> None:
    torch.manual_seed(0)
    x, rows = torch.randn(2, 3, 4, requires_grad=True), torch.randn(5, 4, requires_grad=True)
    weight, bias = torch.randn(12, 4, requires_grad=True), torch.randn(12, requires_grad=True)
    buffer = torch.zeros(12, 4) if has_buffer else None
    found = ours.joined_table(x, weight, bias, buffer, rows)
    expected = (
        functional.linear(x, weight, bias.detach()),
        functional.linear(rows, weight[4:8], bias[4:8]),
        functional.linear(rows, weight[:4], bias[:4]),
    )
    grads = [torch.randn_like(one) for one in expected]
    given = (x, weight, bias, rows)
    mine, theirs = (torch.autograd.grad(outputs, given, grads) for outputs in (found, expected))
    for one, other in zip((*found, *mine), (*expected, *theirs), strict=True):
        torch.testing.assert_close(one, other)
    if buffer is not None:
        torch.testing.assert_close(buffer, theirs[1])


@pytest.mark.parametrize("has_buffer", [True, False])
def test_three_bare_matrices_are_one_product(has_buffer: bool) -> None:
    torch.manual_seed(0)
    x, weights = torch.randn(2, 3, 4, requires_grad=True), neighbours(3, 4, 6)
    buffer = torch.zeros(12, 6) if has_buffer else None
    found = ours.three_bare(x, weights, buffer)
    expected = torch.stack([x.flatten(0, 1) @ weight for weight in weights])
    grad = torch.randn_like(expected)
    mine, theirs = (torch.autograd.grad(one, (x, *weights), grad) for one in (found, expected))
    for one, other in zip((found, *mine), (expected, *theirs), strict=True):
        torch.testing.assert_close(one, other)
    if buffer is not None:
        torch.testing.assert_close(buffer, torch.cat(theirs[1:]))
