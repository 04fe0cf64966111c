"""The mix by kernels, in Triton's interpreter on the CPU, equals LayerMix."""

import pytest
import torch

from bermo.nn.heads import take_rows
from bermo.nn.mix import LayerMix

mixing = pytest.importorskip("bermo.nn.fast.mixing", reason="needs Triton")
ROWS = torch.tensor([[0], [2]])


def layers(num: int = 5) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(2, 3, 10, requires_grad=True) for _ in range(num)]


@pytest.mark.parametrize("num_programs", [1024, 2])
@pytest.mark.parametrize("is_few", [False, True])
@pytest.mark.parametrize("norm", ["across", "within", None])
def test_the_mix_and_its_gradients_equal_the_stacked_one(
    norm: str | None, is_few: bool, num_programs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mixing, "NUM_PROGRAMS", num_programs)
    mix = LayerMix(5, norm, dropout=0.0)
    hidden, rows = layers(), ROWS if is_few else None
    shares = mix._shares() * mix.scale
    fast = mixing.mixing(hidden, shares, torch.tensor([5]), rows, norm, 0.0, mix.eps)
    slow = mix(hidden if rows is None else [take_rows(h, rows) for h in hidden])
    torch.testing.assert_close(fast, slow, rtol=1e-5, atol=1e-6)
    grad = torch.randn_like(slow)
    inputs = (mix.logits, mix.scale, *hidden)
    actual = torch.autograd.grad(fast, inputs, grad)
    for a, b in zip(actual, torch.autograd.grad(slow, inputs, grad), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_dropout_falls_on_the_normed_layers_and_is_the_same_both_ways() -> None:
    hidden, seed, p = [h[:1, :2] for h in layers()], torch.tensor([5]), 0.4
    shares = torch.rand(5, requires_grad=True)
    raw = mixing.mixing(hidden, shares, seed, None, None, p)
    factors = torch.autograd.grad(raw, hidden, torch.ones_like(raw))
    kept = torch.stack([f / c for f, c in zip(factors, shares.detach(), strict=True)])
    assert 0.2 < (kept == 0).float().mean() < 0.6
    assert torch.equal(kept == 0, ~(kept - 1 / (1 - p)).abs().lt(1e-4))

    normal = LayerMix(5, "across", dropout=0.0)._normalise(hidden, None) * kept
    slow = torch.tensordot(shares, normal, dims=1)
    fast = mixing.mixing(hidden, shares, seed, None, "across", p)
    torch.testing.assert_close(fast, slow, rtol=1e-5, atol=1e-5)
    grad = torch.randn_like(slow)
    actual = torch.autograd.grad(fast, (shares, *hidden), grad)
    for a, b in zip(actual, torch.autograd.grad(slow, (shares, *hidden), grad), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_what_the_kernels_do_not_know_is_refused() -> None:
    hidden = layers()
    assert mixing.can_mix(hidden, "across", ROWS)
    assert not mixing.can_mix(hidden, "tensor", None)
    assert not mixing.can_mix(hidden, "across", torch.zeros(2, 2, dtype=torch.int64))
    assert not mixing.can_mix([hidden[0][0], hidden[1][0]], "across", None)
