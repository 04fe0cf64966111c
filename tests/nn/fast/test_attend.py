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


def joined(num_tokens: int) -> list[Tensor]:
    """q, k and v as views of one product, heads side by side: no stride is what a plain tensor has."""
    product = torch.randn(B, num_tokens, 3, H, D)
    return [part.transpose(1, 2).requires_grad_() for part in product.unbind(2)]


def is_ours(out: Tensor) -> bool:
    return "Tiles" in type(out.grad_fn).__name__


def test_torch_is_asked_for_attention_that_the_kernels_do_not_know() -> None:
    torch.manual_seed(0)
    q, k, v = joined(5)
    long = torch.randn(1, 1, 600, 2, requires_grad=True)
    wide = torch.randn(1, 1, 2, 65, requires_grad=True)
    bias = torch.zeros(B, H, 5, 5, requires_grad=True)
    cases: list[tuple[tuple[Tensor, ...], dict[str, Any]]] = [
        ((q, k, v), {"is_causal": True}),
        ((q, k[:, :1], v[:, :1]), {"enable_gqa": True}),
        ((q, k[:, :, :3], v[:, :, :3]), {}),
        ((q, k, v), {"attn_mask": bias}),
        ((q, k, v), {"attn_mask": bias.detach()}),
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
