"""Attention and gelu on a processor against torch's own, to rounding, with the same random numbers."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from bermo.nn.fast import host
from bermo.nn.fast.host import Hosting, can_host
from tests.small_models import batch_of, model_of

CPU = torch.device("cpu")
MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "causal": {"is_causal": True},
    "bool": {"attn_mask": torch.arange(20).ge(3).view(1, 1, 1, 20).expand(2, 1, 20, 20)},
    "added": {"attn_mask": torch.zeros(2, 1, 20, 20).index_fill_(3, torch.tensor([5, 6]), -torch.inf)},
    "nothing seen": {
        "attn_mask": torch.ones(2, 1, 20, 20, dtype=torch.bool).index_fill_(2, torch.tensor([4]), False)
    },
}


def three(tokens: int = 20, heads: int = 3) -> tuple[Tensor, ...]:
    """Queries, keys and values as a model has them: views of (B, T, H, D)."""
    drawn = torch.randn(3, 2, tokens, heads, 8)
    return tuple(x.transpose(1, 2).detach().requires_grad_() for x in drawn)


@pytest.mark.parametrize("name", MASKS)
def test_attention_and_its_gradients_are_torchs(name: str) -> None:
    torch.manual_seed(0)
    q, k, v = three()
    grad = torch.randn(2, 3, 20, 8)
    found = []
    for holding in (nullcontext(), Hosting()):
        torch.manual_seed(1)
        with holding:
            out = functional.scaled_dot_product_attention(q, k, v, dropout_p=0.3, scale=0.4, **MASKS[name])
        found.append((out, *torch.autograd.grad(out, (q, k, v), grad)))
        after = torch.rand(())  # as many numbers were drawn
        found[-1] += (after,)
    assert type(found[1][0].grad_fn).__name__ == "AttentionBackward"
    for ours, theirs in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=2e-6)


def test_gelus_gradient_is_that_of_twice_the_precision() -> None:
    x = torch.linspace(-9, 9, 1001).requires_grad_()
    with Hosting():
        y = functional.gelu(x)
    assert type(y.grad_fn).__name__ == "GeluBackward"
    exact = x.detach().double().requires_grad_()
    (slope,) = torch.autograd.grad(functional.gelu(exact).sum(), exact)
    (ours,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(y, functional.gelu(x))
    torch.testing.assert_close(ours.double(), slope, rtol=0, atol=5e-7)


@pytest.mark.parametrize(
    "options",
    [{"dropout_p": 0.0}, {"dropout_p": 0.1, "learned": True}],
)
def test_what_is_not_known_is_left_to_torch(options: dict[str, object]) -> None:
    q, k, v = three()
    learned = torch.zeros(2, 1, 20, 20, requires_grad=True) if options.pop("learned", False) else None
    with Hosting():
        out = functional.scaled_dot_product_attention(q, k, v, learned, **options)  # type: ignore[arg-type]
        assert type(out.grad_fn).__name__ != "AttentionBackward"
        assert type(functional.gelu(q, approximate="tanh").grad_fn).__name__ != "GeluBackwardBackward"
        with torch.no_grad():
            assert functional.scaled_dot_product_attention(q, k, v, dropout_p=0.1).grad_fn is None
        with torch.autocast("cpu", torch.bfloat16):
            half = functional.gelu(q)
    assert type(half.grad_fn).__name__ == "GeluBackward0"


def test_only_what_gains_by_it_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    monkeypatch.setattr(host, "IS_SLOW", True)
    assert can_host(model, CPU)
    assert not can_host(model, torch.device("cuda"))
    model[0].gradient_checkpointing = True
    assert not can_host(model, CPU)
    del model[0].gradient_checkpointing
    monkeypatch.setattr(host, "IS_SLOW", False)
    assert not can_host(model, CPU)


def test_a_step_by_it_has_the_plain_steps_gradients() -> None:
    model = model_of("bert").train()
    batch = batch_of(model) | {"labels": torch.tensor([0, 1, 1])}
    found = []
    for holding in (nullcontext(), Hosting()):
        torch.manual_seed(3)
        with holding:
            loss = model(**batch).loss
        model.zero_grad()
        loss.backward()
        found.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    assert found[0].keys() == found[1].keys()
    for name, grad in found[0].items():
        torch.testing.assert_close(found[1][name], grad, rtol=1e-4, atol=1e-6)
