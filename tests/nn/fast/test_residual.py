"""LayerNorm(x + dropout(h)) by kernels, in Triton's interpreter, equals its twin in plain torch."""

import pytest
import torch

from bermo.nn.heads import take_rows

fused = pytest.importorskip("bermo.nn.fast.residual", reason="needs Triton")


@pytest.mark.parametrize("p", [0.0, 0.25])
@pytest.mark.parametrize(("num_groups", "adds"), [(1, False), (3, False), (3, True)])
def test_output_and_all_gradients_equal_the_twin(num_groups: int, adds: bool, p: float) -> None:
    torch.manual_seed(0)
    rows, size = 21, 24  # neither is a power of two, and a group's 7 rows are no multiple of four
    h, x = torch.randn(2, rows, size).unbind()
    gamma, beta = torch.randn(2, num_groups, size).unbind()
    given = [t.clone().requires_grad_() for t in (h, x, gamma, beta)]
    bias = torch.randn(num_groups, size, requires_grad=True)
    seed = torch.randint(0, 2**62, (1,))
    y, copy, *_ = fused.residual(*given, seed, p, 1e-5, bias, torch.float32, adds)
    assert copy is not None
    assert torch.equal(y, copy)
    grad, copy_grad = torch.randn(2, rows, size).unbind()
    torch.autograd.backward([y, copy], [grad, copy_grad])
    kept = (given[0].grad != 0).float() / (1 - p)
    assert p == 0 or 0 < (kept == 0).float().mean() < 2 * p

    slow = [t.clone().requires_grad_() for t in (h, x, gamma, beta)]
    whole = (slow[0].view(num_groups, -1, size) + bias.detach()[:, None] * adds).view_as(h)
    twin = fused.residual_twin(whole, *slow[1:], kept, 1e-5)
    twin.backward(grad + copy_grad)
    torch.testing.assert_close(y, twin, rtol=1e-5, atol=1e-5)
    for fast, reference in zip(given, slow, strict=True):
        torch.testing.assert_close(fast.grad, reference.grad, rtol=1e-4, atol=1e-5)
    sums = slow[0].grad.view(num_groups, -1, size).sum(1)
    torch.testing.assert_close(bias.grad, sums, rtol=1e-4, atol=1e-5)


def test_one_of_the_two_gradients_is_enough_and_a_seed_draws_the_same_again() -> None:
    torch.manual_seed(0)
    h, x = torch.randn(2, 8, 5, requires_grad=True).unbind()
    gamma, beta, seed = torch.ones(5), torch.zeros(5), torch.tensor([7])
    grads = []
    for index in (0, 1):
        outputs = fused.residual(h, x, gamma, beta, seed, 0.5, half=torch.float32)
        grads.append(torch.autograd.grad(outputs[index].square().sum(), (h, x)))
    for first, second in zip(*grads, strict=True):
        assert torch.equal(first, second)
    other, *_ = fused.residual(h, x, gamma, beta, seed + 1, 0.5)
    assert not torch.equal(other, outputs[0])


def test_dropout_keeps_its_share_and_the_four_rows_of_a_draw_differ() -> None:
    h = torch.ones(16, 300, requires_grad=True)
    y, *_ = fused.residual(h, torch.randn(16, 300), torch.ones(300), torch.zeros(300), torch.tensor([1]), 0.1)
    (y * torch.randn(16, 300)).sum().backward()
    dropped = h.grad == 0
    assert dropped.float().mean().item() == pytest.approx(0.1, abs=0.02)
    assert len({tuple(row.tolist()) for row in dropped}) == 16


@pytest.mark.parametrize("num_parts", [1, 5, 64, 150])
def test_parts_are_added_up_whatever_their_number(num_parts: int) -> None:
    parts = torch.randn(2, num_parts, 3, 70)
    actual = [torch.empty(2, 70), torch.empty(2, 70)]
    fused.sum_parts(parts, actual)
    for kind, total in enumerate(actual):
        torch.testing.assert_close(total, parts[:, :, kind].sum(1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_alone", [True, False])
def test_rows_of_chosen_tokens_are_given_by_themselves_and_their_gradient_is_added(is_alone: bool) -> None:
    torch.manual_seed(0)
    given = [torch.randn(3, 5, 6, requires_grad=True) for _ in range(2)]
    gamma, beta, seed = torch.randn(6), torch.randn(6), torch.tensor([7])
    tokens, grad, of_rows = torch.tensor([[0], [4], [2]]), torch.randn(3, 5, 6), torch.randn(3, 1, 6)
    y, _, rows = fused.residual(*given, gamma, beta, seed, 0.3, tokens=tokens)
    assert torch.equal(rows, take_rows(y, tokens))
    mine = torch.autograd.grad(
        [rows] if is_alone else [y, rows], given, [of_rows] if is_alone else [grad, of_rows]
    )
    y, *_ = fused.residual(*given, gamma, beta, seed, 0.3)
    whole = torch.zeros(3, 5, 6) if is_alone else grad.clone()
    whole.scatter_add_(1, tokens[..., None].expand(-1, -1, 6), of_rows)
    for found, expected in zip(mine, torch.autograd.grad(y, given, whole), strict=True):
        torch.testing.assert_close(found, expected)
