"""Attention and gelu on a CPU against torch's own, to rounding, with the same random numbers."""

from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from bermo.machine import Processor
from bermo.nn.fast import cpu
from bermo.nn.fast.cpu import CpuOverrides, are_slow_in_torch, is_faster
from tests.nn.masks import MASKS
from tests.small_models import batch_of, model_of

CPU = torch.device("cpu")


def three(tokens: int = 20, heads: int = 3) -> tuple[Tensor, ...]:
    """Queries, keys and values as a model has them: views of (B, T, H, D)."""
    drawn = torch.randn(3, 2, tokens, heads, 8)
    return tuple(x.transpose(1, 2).detach().requires_grad_() for x in drawn)


@pytest.mark.parametrize("name", MASKS)
def test_attention_and_its_gradients_are_torchs(name: str) -> None:
    torch.manual_seed(0)
    q, k, v = three()
    grad = torch.randn(2, 3, 20, 8)
    runs = []
    for holding in (nullcontext(), CpuOverrides()):
        torch.manual_seed(1)
        with holding:
            out = functional.scaled_dot_product_attention(q, k, v, dropout_p=0.3, scale=0.4, **MASKS[name])
        runs.append((out, *torch.autograd.grad(out, (q, k, v), grad)))
        after = torch.rand(())  # as many numbers were drawn
        runs[-1] += (after,)
    assert type(runs[1][0].grad_fn).__name__ == "AttentionBackward"
    for ours, theirs in zip(runs[1], runs[0], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=2e-6)


def test_gelus_gradient_is_that_of_twice_the_precision() -> None:
    x = torch.linspace(-9, 9, 1001).requires_grad_()
    with CpuOverrides():
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
    with CpuOverrides():
        out = functional.scaled_dot_product_attention(q, k, v, learned, **options)  # type: ignore[arg-type]
        assert type(out.grad_fn).__name__ != "AttentionBackward"
        assert type(functional.gelu(q, approximate="tanh").grad_fn).__name__ != "GeluBackwardBackward"
        with torch.no_grad():
            assert functional.scaled_dot_product_attention(q, k, v, dropout_p=0.1).grad_fn is None
        with torch.autocast("cpu", torch.bfloat16):
            half = functional.gelu(q)
    assert type(half.grad_fn).__name__ == "GeluBackward0"


def test_the_functions_are_used_on_the_cpu_and_not_where_parts_are_computed_again() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    assert is_faster(model, CPU, is_slow=True)
    assert not is_faster(model, CPU, is_slow=False)
    assert not is_faster(model, torch.device("cuda"), is_slow=True)
    model[0].gradient_checkpointing = True
    assert not is_faster(model, CPU, is_slow=True)


@pytest.mark.parametrize(
    ("architecture", "system", "has_mkl", "expected"),
    [
        ("aarch64", "Linux", False, True),
        ("aarch64", "Linux", True, False),
        ("x86_64", "Linux", True, False),
        ("x86_64", "Linux", False, False),
        ("arm64", "Darwin", False, False),
    ],
)
def test_only_a_cpu_on_which_they_were_measured_faster_gets_them(
    architecture: str, system: str, has_mkl: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor = Processor(name="", architecture=architecture, system=system, cores=2)
    assert are_slow_in_torch(processor, has_mkl) == expected
    monkeypatch.setattr(cpu, "processor", lambda: processor)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: has_mkl)
    assert is_faster(nn.Linear(2, 2), CPU) == expected


def test_a_step_by_it_has_the_plain_steps_gradients() -> None:
    model = model_of("bert").train()
    batch = batch_of(model) | {"labels": torch.tensor([0, 1, 1])}
    runs = []
    for holding in (nullcontext(), CpuOverrides()):
        torch.manual_seed(3)
        with holding:
            loss = model(**batch).loss
        model.zero_grad()
        loss.backward()
        runs.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    assert runs[0].keys() == runs[1].keys()
    for name, grad in runs[0].items():
        torch.testing.assert_close(runs[1][name], grad, rtol=1e-4, atol=1e-6)
