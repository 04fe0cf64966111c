"""Attention by tiles, in Triton's interpreter, equals plain torch and gives its product a joined gradient."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from bermo.nn.fast.late import Late

ours = pytest.importorskip("bermo.nn.fast.tiles", reason="needs Triton")
bits = pytest.importorskip("bermo.nn.fast.attend_bits")
attend = pytest.importorskip("bermo.nn.fast.attend")
dense = pytest.importorskip("bermo.nn.fast.dense")
B, H, D = 2, 1, 6


def joined(num_tokens: int, heads: int = H) -> list[Tensor]:
    """q, k and v as views of one product, heads side by side."""
    product = torch.randn(B, num_tokens, 3, heads, D)
    return [part.transpose(1, 2).requires_grad_() for part in product.unbind(2)]


def apart(num_tokens: int) -> list[Tensor]:
    """q, k and v by themselves."""
    return [torch.randn(B, num_tokens, H, D).transpose(1, 2).requires_grad_() for _ in range(3)]


def mask_of(kind: str, num_tokens: int) -> Tensor | None:
    real = torch.arange(num_tokens) < torch.tensor([num_tokens, max(2, num_tokens - 50)])[:, None]
    random = torch.rand(B, H, num_tokens, num_tokens) > 0.4
    random[1, :, 3] = False
    return {"none": None, "padding": real[:, None, None, :], "all pairs": random}[kind]


@pytest.mark.parametrize("kind", ["none", "padding", "all pairs"])
@pytest.mark.parametrize(("num_tokens", "p"), [(5, 0.0), (33, 0.0), (5, 0.3), (33, 0.3), (70, 0.3)])
def test_output_and_gradients_equal_those_of_plain_torch(num_tokens: int, p: float, kind: str) -> None:
    torch.manual_seed(0)
    seed = torch.tensor([7])
    given, mask = joined(num_tokens), mask_of(kind, num_tokens)
    seen = bits.seen_of(mask, B, num_tokens, torch.device("cpu"))
    out = ours.tiles(*given, seen, seed, p, 0.3)
    kept = torch.ones(B, H, num_tokens, num_tokens)
    if p > 0:
        share = round(p * 65536) / 65536
        kept = bits.truths(bits.draw(seed, B * H, num_tokens, p), num_tokens).view_as(kept) / (1 - share)
    expected = attend.attend_twin(*given, mask, kept, 0.3)
    torch.testing.assert_close(out, expected)
    grad = torch.randn_like(out)
    actual = torch.autograd.grad(out, given, grad)
    for mine, theirs in zip(actual, torch.autograd.grad(expected, given, grad), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    assert ours.are_one_product(*actual)


def test_gradients_of_what_is_no_one_product_lie_apart() -> None:
    torch.manual_seed(0)
    given = apart(66)
    with attend.AttentionOverride():
        out = functional.scaled_dot_product_attention(*given)
    actual = torch.autograd.grad(out.square().sum(), given)
    expected = functional.scaled_dot_product_attention(*given).square().sum()
    for mine, theirs in zip(actual, torch.autograd.grad(expected, given), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
        assert mine.transpose(1, 2).is_contiguous()


def product_of_three(late: Late | None) -> tuple[Tensor, list[Tensor]]:
    """A loss of attention to a product, and the vectors and matrices that made it, neighbours in memory."""
    torch.manual_seed(0)
    size = 2 * D
    weights = [part.requires_grad_() for part in torch.randn(3 * size, size).chunk(3)]
    biases = [part.requires_grad_() for part in torch.randn(3 * size).chunk(3)]
    x = torch.randn(B, 70, size, requires_grad=True)
    three = dense.Joined.apply(x, None, late, *weights, *biases)
    q, k, v = (part.view(B, 70, 2, D).transpose(1, 2) for part in three)
    with attend.AttentionOverride(late):
        out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask_of("padding", 70))
    return (out * torch.linspace(-1, 1, D)).sum(), [x, *weights, *biases]


def test_a_product_is_given_the_gradient_that_lies_side_by_side_with_its_sums(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loss, leaves = product_of_three(None)
    loss.backward()
    monkeypatch.setattr(dense, "join", None)
    late = Late()
    again, others = product_of_three(late)
    again.backward()
    for mine, expected in zip(others, leaves, strict=True):
        torch.testing.assert_close(mine.grad, expected.grad, rtol=1e-4, atol=1e-5)
    assert not late.products
    assert not late.gradients


def test_a_product_with_another_reader_joins_its_gradients_itself() -> None:
    found = []
    for late in (None, Late()):
        torch.manual_seed(0)
        size = 2 * D
        weights = [part.requires_grad_() for part in torch.randn(3 * size, size).chunk(3)]
        biases = [part.requires_grad_() for part in torch.randn(3 * size).chunk(3)]
        three = dense.Joined.apply(torch.randn(B, 70, size), None, late, *weights, *biases)
        q, k, v = (part.view(B, 70, 2, D).transpose(1, 2) for part in three)
        with attend.AttentionOverride(late):
            out = functional.scaled_dot_product_attention(q, k, v)
        (out.square().sum() + k.square().sum()).backward()
        found.append([leaf.grad for leaf in (*weights, *biases)])
    for mine, expected in zip(*found, strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-4)


def test_a_text_of_which_nothing_is_seen_gives_zeros_and_takes_none() -> None:
    torch.manual_seed(0)
    given = joined(4)
    seen = bits.seen_of(torch.tensor([True, False]).view(2, 1, 1, 1), B, 4, torch.device("cpu"))
    out = ours.tiles(*given, seen)
    actual = torch.autograd.grad(out, given, torch.ones_like(out))
    assert all(part[0].abs().sum() > 0 for part in (out, *actual[2:]))
    assert all(part[1].abs().sum() == 0 for part in (out, *actual))


def test_in_half_precision_the_error_is_that_of_the_dtype() -> None:
    torch.manual_seed(0)
    wide = joined(17)
    given = [part.detach().half().requires_grad_() for part in wide]
    seen = bits.seen_of(None, B, 17, torch.device("cpu"))
    out, exact = ours.tiles(*given, seen), functional.scaled_dot_product_attention(*wide)
    assert out.dtype == torch.float16
    torch.testing.assert_close(out.float(), exact, rtol=2e-3, atol=2e-3)
    grad = torch.randn_like(out)
    actual = torch.autograd.grad(out, given, grad)
    for mine, theirs in zip(actual, torch.autograd.grad(exact, wide, grad.float()), strict=True):
        torch.testing.assert_close(mine.float(), theirs, rtol=5e-3, atol=5e-3)


def test_wide_heads_and_causal_attention_are_left_to_torch() -> None:
    wide = torch.randn(1, 1, 70, 65, requires_grad=True)
    q, k, v = joined(70)
    for given, options in (((wide, wide, wide), {}), ((q, k, v), {"is_causal": True})):
        with attend.AttentionOverride():
            out = functional.scaled_dot_product_attention(*given, **options)
        assert "Tiles" not in type(out.grad_fn).__name__
    with attend.AttentionOverride():
        assert "Tiles" in type(functional.scaled_dot_product_attention(q, k, v).grad_fn).__name__
