"""Joined products have the outputs and gradients of torch's own, also where they write to a buffer."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from bermo.nn.fast.product import product

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


def in_steps(count: int, *shape: int) -> list[Tensor]:
    """Leaves of one storage, each as far from the one before."""
    size = math.prod(shape)
    flat = torch.randn(count, size + 16)
    return [part[:size].view(shape).detach().requires_grad_() for part in flat.unbind()]


@pytest.mark.parametrize("make", [neighbours, in_steps, apart])
@pytest.mark.parametrize("has_buffers", [True, False])
def test_tables_of_all_layers_are_one_product(make: Callable[..., list[Tensor]], has_buffers: bool) -> None:
    torch.manual_seed(0)
    rows = torch.randn(3, 5, 4, requires_grad=True)
    weights, biases = make(3, 8, 4), make(3, 4)
    buffers = [one.detach() for one in make(3, 8, 4)] if has_buffers else [None] * 3
    found = [(one.left, one.right) for one in ours.tables(rows, 8, weights, biases, buffers)]
    expected = [
        (functional.linear(x, w[:4]), functional.linear(x, w[4:], b))
        for x, w, b in zip(rows, weights, biases, strict=True)
    ]
    given = (rows, *weights, *biases)
    outputs, wanted = [sum(layers, ()) for layers in (found, expected)]
    grads = [torch.randn_like(one) for one in wanted]
    mine, theirs = (torch.autograd.grad(one, given, grads) for one in (outputs, wanted))
    for one, other in zip((*outputs, *mine), (*wanted, *theirs), strict=True):
        torch.testing.assert_close(one, other)
    if has_buffers and make is not apart:
        torch.testing.assert_close(buffers, list(theirs[1:4]))


@pytest.mark.parametrize("make", [neighbours, in_steps, apart])
@pytest.mark.parametrize("num_read", [0, 1, 2])
def test_tables_add_their_gradients_to_those_of_other_readers(
    make: Callable[..., list[Tensor]], num_read: int
) -> None:
    torch.manual_seed(0)
    rows, x = torch.randn(2, 5, 4, requires_grad=True), torch.randn(7, 4, requires_grad=True)
    weights, biases = make(2, 12, 4), make(2, 12)
    buffers = [one.detach() for one in make(2, 12, 4)]
    made = ours.tables(rows, 8, weights, biases)
    found, expected = [], []
    for index, one in enumerate(made):
        w, b = weights[index], biases[index]
        found += [one.left, one.right]
        expected += [functional.linear(rows[index], w[k : k + 4], b[k : k + 4]) for k in (0, 4)]
        if index < num_read:
            found.append(product(x, one.weight, one.bias, buffers[index]))
            expected.append(functional.linear(x, w, b))
    given = (rows, *([x] if num_read else []), *weights, *biases)
    grads = [torch.randn_like(one) for one in expected]
    mine, theirs = (torch.autograd.grad(one, given, grads) for one in (found, expected))
    for one, other in zip((*found, *mine), (*expected, *theirs), strict=True):
        torch.testing.assert_close(one, other)


def test_a_table_that_nothing_reads_has_no_gradient_of_its_own() -> None:
    rows, weights = torch.randn(2, 5, 4, requires_grad=True), neighbours(2, 8, 4)
    one, _ = ours.tables(rows, 8, weights)
    of_rows, *of_weights = torch.autograd.grad(one.left.sum(), (rows, *weights))
    torch.testing.assert_close(of_rows[0], weights[0][:4].sum(0).expand(5, 4))
    torch.testing.assert_close(of_weights[0][:4], rows[0].sum(0).expand(4, 4))
    assert not of_rows[1].any()
    assert not of_weights[0][4:].any()
    assert not of_weights[1].any()


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
