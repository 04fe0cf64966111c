"""Attention and dropout in bfloat16 on a CPU against torch's own, to bfloat16's rounding."""

from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from bermo.machine import Processor
from bermo.nn.fast.cpu_half import (
    HalfOverrides,
    draw_kept,
    has_fast_half,
    is_faster_in_half,
)
from bermo.nn.fast.overrides import ATTENTION
from bermo.training.gradient_gap import gradient_gap, nearly_no_dropout
from tests.nn.masks import MASKS
from tests.small_models import batch_of, model_of
from tests.tiny import CONFIGS

CPU = torch.device("cpu")


def half() -> Any:
    return torch.autocast("cpu", torch.bfloat16)


def three(dtype: torch.dtype = torch.bfloat16) -> tuple[Tensor, ...]:
    """Queries, keys and values as a model has them: views of (B, T, H, D)."""
    drawn = torch.randn(3, 2, 20, 3, 8).to(torch.bfloat16).to(dtype)
    return tuple(x.transpose(1, 2).detach().requires_grad_() for x in drawn)


def relative(ours: Tensor, exact: Tensor) -> float:
    return float((ours.detach().double() - exact.detach()).norm() / exact.detach().norm())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", MASKS)
def test_attention_and_its_gradients_are_the_exact_ones_to_rounding(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    q, k, v = three(dtype)
    grad = torch.randn(2, 3, 20, 8).to(torch.bfloat16)
    with half(), HalfOverrides():
        out = functional.scaled_dot_product_attention(q, k, v, scale=0.4, **MASKS[name])
    assert out.dtype == torch.bfloat16
    ours = (out, *torch.autograd.grad(out, (q, k, v), grad))
    precise = [x.detach().double().requires_grad_() for x in (q, k, v)]
    mask = dict(MASKS[name])
    if mask.get("attn_mask") is not None and mask["attn_mask"].is_floating_point():
        mask["attn_mask"] = mask["attn_mask"].double()
    exact = functional.scaled_dot_product_attention(*precise, scale=0.4, **mask)
    theirs = (exact, *torch.autograd.grad(exact, precise, grad.double()))
    for mine, wanted in zip(ours, theirs, strict=True):
        assert relative(mine, wanted) < 0.01


def test_attentions_dropout_has_the_gradients_of_its_own_factors() -> None:
    """With one key's value different from zero at a time, the output shows which shares were kept."""
    torch.manual_seed(0)
    q, k, _ = three()
    v = torch.eye(20, dtype=torch.bfloat16).expand(2, 3, 20, 20).detach().requires_grad_()
    q, k = (torch.cat([x, x, x], -1)[..., :20].detach().requires_grad_() for x in (q, k))
    grad = torch.randn(2, 3, 20, 20).to(torch.bfloat16)
    with half(), HalfOverrides():
        kept_shares = functional.scaled_dot_product_attention(q, k, v, dropout_p=0.3, scale=0.2)
    ours = torch.autograd.grad(kept_shares, (q, k, v), grad)
    factors = (kept_shares != 0).double() / 0.7
    precise = [x.detach().double().requires_grad_() for x in (q, k, v)]
    shares = torch.softmax(0.2 * precise[0] @ precise[1].transpose(2, 3), -1)
    out = (shares * factors) @ precise[2]
    assert 0.65 < float(factors.gt(0).double().mean()) < 0.75
    assert relative(kept_shares, out) < 0.01
    for mine, wanted in zip(ours, torch.autograd.grad(out, precise, grad.double()), strict=True):
        assert relative(mine, wanted) < 0.015


@pytest.mark.parametrize("p", [0.1, 0.5, 1e-7])
def test_dropout_keeps_as_many_as_it_should_and_the_mean(p: float) -> None:
    torch.manual_seed(0)
    kept, factor = draw_kept(torch.Size((1001, 333)), p, torch.bfloat16)
    share = float(kept.double().mean())
    assert abs(share - (1 - p)) < 4 * (p * (1 - p) / kept.numel()) ** 0.5 + 2**-16
    assert factor * (1 - round(p * 2**16) / 2**16) == pytest.approx(1)
    # Each of the four numbers in 64 bits is as good as the others.
    by_place = kept.view(-1)[: kept.numel() // 4 * 4].view(-1, 4).double().mean(0)
    assert torch.allclose(by_place, torch.full((4,), 1 - p, dtype=torch.float64), atol=0.008)


def test_dropout_scales_what_it_keeps_and_its_gradient_alike() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 48).to(torch.bfloat16).requires_grad_()
    with HalfOverrides():
        y = functional.dropout(x, 0.25)
    assert type(y.grad_fn).__name__ == "HalfDropoutBackward"
    (slope,) = torch.autograd.grad(y.sum(), x)
    expected = torch.where(y != 0, torch.tensor(4 / 3).to(torch.bfloat16), 0)
    assert torch.equal(slope, expected.view_as(slope))
    torch.manual_seed(0)
    torch.randn(64, 48)
    with HalfOverrides():
        assert torch.equal(functional.dropout(x, 0.25), y), "the same seed draws the same numbers"


def test_what_is_not_known_is_left_to_torch() -> None:
    q, k, v = three()
    learned = torch.zeros(2, 1, 20, 20, requires_grad=True)
    x = torch.ones(3, 4, requires_grad=True)
    long = torch.randn(1, 1, 129, 8).to(torch.bfloat16).requires_grad_()
    attention = functional.scaled_dot_product_attention
    with HalfOverrides():
        assert type(attention(q, k, v).grad_fn).__name__ != "HalfAttentionBackward"
        with half():
            assert type(attention(q, k, v, learned).grad_fn).__name__ != "HalfAttentionBackward"
            assert type(attention(long, long, long).grad_fn).__name__ != "HalfAttentionBackward"
            assert type(attention(long, long, long, None, 0.1).grad_fn).__name__ == "HalfAttentionBackward"
            with torch.no_grad():
                assert attention(q, k, v).grad_fn is None
        assert functional.dropout(x, 0.5, training=False) is x
        assert not functional.dropout(x, 1.0).any()
        assert torch.equal(functional.dropout(x, 0.0), x)


@pytest.mark.parametrize("family", [family for family in CONFIGS if family != "elmo"])
def test_every_familys_gradients_are_the_plain_steps_to_rounding(family: str) -> None:
    model = model_of(family).train()
    batch = batch_of(model) | {"labels": torch.tensor([0, 1, 1])}
    named = dict(model.named_parameters())
    runs = []
    with nearly_no_dropout(model):
        for contexts in ((), (half(),), (half(), HalfOverrides())):
            with ExitStack() as stack:
                for context in (torch.nn.attention.sdpa_kernel(ATTENTION), *contexts):
                    stack.enter_context(context)
                loss = model(**batch).loss
            runs.append(torch.autograd.grad(loss, list(named.values()), allow_unused=True))
    exact, plain, ours = runs
    names = list(named)
    assert gradient_gap(names, exact, ours) < 1.5 * gradient_gap(names, exact, plain) + 0.01


def test_only_amx_was_measured_and_checkpointed_models_keep_torchs_own() -> None:
    def processor(architecture: str, *instructions: str) -> Processor:
        sets = frozenset(instructions)
        return Processor(name="", architecture=architecture, system="Linux", cores=2, instructions=sets)

    assert has_fast_half(processor("x86_64", "AMX bf16", "AVX-512 bf16"))
    assert not has_fast_half(processor("x86_64", "AVX-512 bf16"))
    assert not has_fast_half(processor("aarch64", "bf16"))
    model = nn.Sequential(nn.Linear(2, 2))
    assert is_faster_in_half(model, CPU, is_slow=True)
    assert not is_faster_in_half(model, CPU, is_slow=False)
    assert not is_faster_in_half(model, torch.device("cuda"), is_slow=True)
    model[0].gradient_checkpointing = True
    assert not is_faster_in_half(model, CPU, is_slow=True)
