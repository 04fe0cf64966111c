"""x + dropout(h) and its LayerNorm by kernels, in Triton's interpreter, equal their twin in plain torch."""

import pytest
import torch
from torch import Tensor

prenorm = pytest.importorskip("bermo.nn.fast.prenorm", reason="needs Triton")
residual = pytest.importorskip("bermo.nn.fast.residual")


def leaves(rows: int, size: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """h, x, γ, β and the bias that was added to make h, each a leaf that takes a gradient."""
    torch.manual_seed(0)
    h, x = torch.randn(2, rows, size).unbind()
    gamma, beta = torch.randn(2, size).unbind()
    bias = torch.randn(size)
    tensors = {"h": h.to(dtype), "x": x, "gamma": gamma, "beta": beta, "bias": bias.to(dtype)}
    return {name: tensor.clone().requires_grad_() for name, tensor in tensors.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize("has_biases", [True, False])
def test_both_outputs_and_all_gradients_equal_the_twin(
    has_biases: bool, p: float, dtype: torch.dtype
) -> None:
    rows, size = 7, 24  # no power of two, no multiple of four rows
    given, slow = leaves(rows, size, dtype), leaves(rows, size, dtype)
    seed = torch.randint(0, 2**62, (1,))
    beta, bias = (given["beta"], given["bias"]) if has_biases else (None, None)
    z, y = prenorm.add_and_norm(given["h"], given["x"], given["gamma"], beta, bias, seed, p, 1e-5, dtype)
    assert z.dtype == torch.float32
    assert y.dtype == dtype
    of_z, of_y = torch.randn(rows, size), torch.randn(rows, size).to(dtype)
    torch.autograd.backward([z, y], [of_z, of_y])
    kept = (given["h"].grad != 0).float() / (1 - p)
    assert p == 0 or 0 < (kept == 0).float().mean() < 2 * p

    slow_beta = slow["beta"] if has_biases else None
    slow_z, slow_y = prenorm.add_and_norm_twin(slow["h"], slow["x"], slow["gamma"], slow_beta, kept, 1e-5)
    torch.autograd.backward([slow_z, slow_y], [of_z, of_y.float()])
    close = {"rtol": 1e-2, "atol": 1e-2} if dtype == torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(z, slow_z, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(y.float(), slow_y, **close)
    names = ("h", "x", "gamma", "beta") if has_biases else ("h", "x", "gamma")
    for name in names:
        torch.testing.assert_close(given[name].grad, slow[name].grad, msg=name, **close)
    if has_biases:
        # The twin's terms are rounded before they are added.
        sums = slow["h"].grad.float().sum(0)
        torch.testing.assert_close(given["bias"].grad.float(), sums, rtol=4e-2, atol=4e-2)


@pytest.mark.parametrize("num_programs", [1, 2])
def test_a_program_takes_several_blocks_of_rows_where_there_are_many(
    num_programs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(residual, "NUM_PROGRAMS", num_programs)
    given, slow = (leaves(9, 5, torch.float32) for _ in range(2))
    names = ("h", "x", "gamma", "beta")
    fast = prenorm.add_and_norm(*given.values(), torch.tensor([7]), 0.2, 1e-5, torch.float32)
    grads = torch.randn(2, 9, 5).unbind()
    torch.autograd.backward(fast, grads)
    kept = (given["h"].grad != 0).float() / 0.8
    torch.autograd.backward(prenorm.add_and_norm_twin(*(slow[name] for name in names), kept, 1e-5), grads)
    for name in names:
        torch.testing.assert_close(given[name].grad, slow[name].grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(given["bias"].grad, slow["h"].grad.sum(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("index", [0, 1])
def test_one_of_the_two_gradients_is_enough(index: int) -> None:
    given, slow = (leaves(6, 5, torch.float32) for _ in range(2))
    names = ("h", "x", "gamma", "beta")
    fast = prenorm.add_and_norm(*(given[name] for name in names), None, torch.tensor([7]), 0.0, 1e-5, None)
    twin = prenorm.add_and_norm_twin(*(slow[name] for name in names), 1.0, 1e-5)
    grad = torch.randn(6, 5)
    read = names[: 2 if index == 0 else 4]
    actual = torch.autograd.grad(fast[index], [given[name] for name in read], grad)
    expected = torch.autograd.grad(twin[index], [slow[name] for name in read], grad)
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_a_seed_draws_the_same_again_and_the_rows_of_a_draw_differ() -> None:
    h, x = torch.ones(16, 300), torch.zeros(16, 300)
    options = (torch.ones(300), None, None)

    def draw(seed: int) -> Tensor:
        return prenorm.add_and_norm(h, x, *options, torch.tensor([seed]), 0.1, 1e-5, None)[0]

    first = draw(1)
    assert torch.equal(first, draw(1))
    assert not torch.equal(first, draw(2))
    assert (first == 0).float().mean().item() == pytest.approx(0.1, abs=0.02)
    assert len({tuple(row.tolist()) for row in first}) == 16
