"""Attention by kernels, in Triton's interpreter, equals torch's, which computes what the kernels cannot."""

from contextlib import nullcontext
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

ours = pytest.importorskip("bermo.nn.fast.attend", reason="needs Triton")
B, H, D = 2, 2, 6


def joined(num_tokens: int, size: int = D, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """q, k and v as views of one product, heads side by side: no stride is what a plain tensor has."""
    product = torch.randn(B, num_tokens, 3, H, size, dtype=dtype)
    return [part.transpose(1, 2).requires_grad_() for part in product.unbind(2)]


def mask_of(kind: str, num_tokens: int) -> Tensor | None:
    lengths = torch.tensor([num_tokens, num_tokens - 2])
    padded = (torch.arange(num_tokens) < lengths[:, None])[:, None, None, :]
    added = torch.randn(1, H, num_tokens, num_tokens)
    return {
        "none": None,
        "bool": padded,
        "bool of one text": ~torch.eye(num_tokens, dtype=torch.bool),
        "bool of all pairs": padded.expand(B, 1, num_tokens, num_tokens).contiguous(),
        "float": torch.where(padded, 0.0, torch.finfo(torch.float32).min),
        "float of all heads": added,
        "float with infinities": added.masked_fill(~padded, float("-inf")),
    }[kind]


def lies_by_tokens(x: Tensor) -> bool:
    return x.transpose(1, 2).is_contiguous()


@pytest.mark.parametrize(
    "kind",
    [
        "none",
        "bool",
        "bool of one text",
        "bool of all pairs",
        "float",
        "float of all heads",
        "float with infinities",
    ],
)
@pytest.mark.parametrize("num_tokens", [5, 17])
def test_output_and_gradients_equal_those_of_torch(num_tokens: int, kind: str) -> None:
    torch.manual_seed(0)
    given, mask = joined(num_tokens), mask_of(kind, num_tokens)
    out = ours.attend(*given, mask, scale=0.3)
    grad = torch.randn_like(out)
    actual = torch.autograd.grad(out, given, grad)
    expected = functional.scaled_dot_product_attention(*given, mask, scale=0.3)
    torch.testing.assert_close(out, expected)
    reference = torch.autograd.grad(expected, given, grad)
    for mine, theirs in zip(actual, reference, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    assert lies_by_tokens(out)
    assert all(map(lies_by_tokens, actual))


def test_dropout_is_drawn_again_in_the_backward_pass() -> None:
    torch.manual_seed(0)
    num_tokens, p, seed = 20, 0.3, torch.tensor([7])
    zeros = torch.zeros(B, H, num_tokens, num_tokens)
    identity = torch.eye(num_tokens).expand_as(zeros)
    kept = ours.attend(zeros, zeros, identity, None, seed, p) * num_tokens  # all shares are 1 / T
    values = torch.tensor([0.0, 1 / (1 - p)])
    torch.testing.assert_close(kept, values[(kept > 0.5).long()])
    assert (kept == 0).float().mean().item() == pytest.approx(p, abs=0.05)
    rows = (kept == 0).flatten(0, 2)
    assert len({tuple(row.tolist()) for row in rows}) == len(rows)
    assert len({tuple(row.tolist()) for row in rows.T}) == num_tokens

    given, mask = joined(num_tokens), mask_of("bool", num_tokens)
    out = ours.attend(*given, mask, seed, p, 0.5)
    expected = ours.attend_twin(*given, mask, kept, 0.5)
    torch.testing.assert_close(out, expected)
    grad = torch.randn_like(out)
    actual = torch.autograd.grad(out, given, grad)
    for mine, theirs in zip(actual, torch.autograd.grad(expected, given, grad), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    assert not torch.equal(out, ours.attend(*given, mask, seed + 1, p, 0.5))


@pytest.mark.parametrize("is_bool", [True, False])
def test_a_query_that_sees_no_key_gives_zeros_and_takes_none(is_bool: bool) -> None:
    torch.manual_seed(0)
    given = joined(4)
    sees = torch.ones(B, 1, 4, 4, dtype=torch.bool)
    sees[1, :, 2] = False
    mask = sees if is_bool else torch.zeros(sees.shape).masked_fill(~sees, float("-inf"))
    out = ours.attend(*given, mask)
    actual = torch.autograd.grad(out, given, torch.ones_like(out))
    assert out[1, :, 2].abs().sum() == 0
    assert actual[0][1, :, 2].abs().sum() == 0
    expected = ours.attend_twin(*given, mask, 1.0, D**-0.5)
    torch.testing.assert_close(out, expected)
    reference = torch.autograd.grad(expected, given, torch.ones_like(out))
    for mine, theirs in zip(actual, reference, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_in_half_precision_the_error_is_that_of_the_dtype() -> None:
    torch.manual_seed(0)
    given = joined(17, 32, torch.float16)
    wide = [part.detach().float().requires_grad_() for part in given]
    out, exact = ours.attend(*given), functional.scaled_dot_product_attention(*wide)
    assert out.dtype == torch.float16
    torch.testing.assert_close(out.float(), exact, rtol=2e-3, atol=2e-3)
    grad = torch.randn_like(out)
    actual = torch.autograd.grad(out, given, grad)
    for mine, theirs in zip(actual, torch.autograd.grad(exact, wide, grad.float()), strict=True):
        torch.testing.assert_close(mine.float(), theirs, rtol=4e-3, atol=4e-3)


def is_ours(out: Tensor) -> bool:
    return "Attend" in type(out.grad_fn).__name__


def test_torch_is_asked_for_attention_that_the_kernels_do_not_know() -> None:
    torch.manual_seed(0)
    q, k, v = joined(5)
    long = torch.randn(1, 1, 600, 2, requires_grad=True)
    wide = torch.randn(1, 1, 2, 129, requires_grad=True)
    bias = torch.zeros(B, H, 5, 5, requires_grad=True)
    cases: list[tuple[tuple[Tensor, ...], dict[str, Any]]] = [
        ((q, k, v), {"is_causal": True}),
        ((q, k[:, :1], v[:, :1]), {"enable_gqa": True}),
        ((q, k[:, :, :3], v[:, :, :3]), {}),
        ((q, k, v), {"attn_mask": bias}),
        ((q, k, v), {"dropout_p": 1.0}),
        ((long, long, long), {}),
        ((wide, wide, wide), {}),
        ((q[0], k[0], v[0]), {}),
        ((q.bfloat16(), k.bfloat16(), v.bfloat16()), {}),
    ]
    for given, options in cases:
        with ours.AttentionOverride():
            out = functional.scaled_dot_product_attention(*given, **options)
        assert not is_ours(out), options
        torch.testing.assert_close(
            out, functional.scaled_dot_product_attention(*given, **options), equal_nan=True
        )
    with ours.AttentionOverride():
        assert is_ours(functional.scaled_dot_product_attention(q, k, v, scale=0.1, is_causal=False))
    assert not is_ours(functional.scaled_dot_product_attention(q, k, v))


def test_a_mask_of_one_value_for_all_keys_never_reaches_torch() -> None:
    class Seen(TorchFunctionMode):
        masks: ClassVar[list[Any]] = []

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is functional.scaled_dot_product_attention:
                self.masks.append((kwargs or {}).get("attn_mask"))
            return func(*args, **(kwargs or {}))

    long = torch.randn(2, 1, 200, 72)
    one = torch.ones(1, 1, 200, 1, dtype=torch.bool).expand(2, 1, 200, 200)
    real = one.clone()
    expected = functional.scaled_dot_product_attention(long, long, long)
    with Seen(), ours.AttentionOverride():
        for mask in (one, real, real[:]):
            out = functional.scaled_dot_product_attention(long, long, long, attn_mask=mask)
            torch.testing.assert_close(out, expected)
    assert Seen.masks[0] is None
    assert Seen.masks[1].dtype == torch.float32
    assert Seen.masks[2] is Seen.masks[1], "made once"


def test_a_mask_of_truths_is_added_as_torch_adds_it() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 70, 72, requires_grad=True) for _ in range(3))
    mask = torch.rand(2, 1, 70, 70) > 0.3
    found = []
    for mode in (ours.AttentionOverride(), nullcontext()):
        with mode:
            out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask.expand(2, 3, 70, 70))
        found.append((out, *torch.autograd.grad(out.square().sum(), (q, k, v))))
    for mine, theirs in zip(*found, strict=True):
        assert torch.equal(mine, theirs)


def test_every_call_of_a_pass_has_its_own_seed() -> None:
    mode = ours.AttentionOverride()
    seeds = [mode._seed(torch.device("cpu")).item() for _ in range(2 * ours.NUM_SEEDS + 1)]
    assert len(set(seeds)) == len(seeds)
    given = joined(5)
    with mode:
        first, second = (functional.scaled_dot_product_attention(*given, dropout_p=0.5) for _ in range(2))
    assert not torch.equal(first, second)
