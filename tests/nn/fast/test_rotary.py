"""Rotated queries and keys from one product, in Triton's interpreter, equal plain torch's."""

import pytest
import torch
from torch import Tensor

rotary = pytest.importorskip("bermo.nn.fast.rotary", reason="needs Triton")


def angles(num_texts: int, num_tokens: int, size: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines that differ between the halves of a head, though no encoder has such."""
    angle = torch.rand(num_texts, num_tokens, size) * 6
    return angle.cos(), angle.sin()


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize(
    ("texts", "tokens", "heads", "size", "num_angles"), [(2, 5, 3, 6, 1), (3, 2, 2, 8, 3)]
)
def test_outputs_and_gradients_equal_the_twin(
    texts: int, tokens: int, heads: int, size: int, num_angles: int, has_bias: bool
) -> None:
    torch.manual_seed(0)
    width = heads * size
    given = [torch.randn(texts, tokens, 7), torch.randn(3 * width, 7), torch.randn(3 * width)]
    given = [tensor.requires_grad_() for tensor in given[: 3 if has_bias else 2]]
    x, weight, bias = (*given, None)[:3]
    around = angles(num_angles, tokens, size)
    target = torch.zeros_like(weight)
    fast = rotary.rotated_three(x, weight, bias, target, *around, heads)
    slow = rotary.rotated_three_twin(x, weight, bias, *around, heads)
    assert all(one.shape == (texts, tokens, heads, size) for one in fast)
    for a, b in zip(fast, slow, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    # As attention's gradients lie: heads before tokens, or side by side.
    apart = torch.randn(3, texts, heads, tokens, size).transpose(2, 3)
    for grads in (apart.unbind(), torch.stack(apart.unbind(), 2).unbind(2)):
        actual = torch.autograd.grad(fast, given, grads, retain_graph=True)
        expected = torch.autograd.grad(slow, given, grads, retain_graph=True)
        for a, b in zip(actual, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
        assert actual[1].data_ptr() == target.data_ptr()


def test_half_precision_is_rounded_once() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(2, 4, 8).bfloat16(), torch.randn(48, 8).bfloat16()
    around = angles(1, 4, 8)
    fast = rotary.rotated_three(x, weight, None, None, *around, 2)
    slow = rotary.rotated_three_twin(x, weight, None, *around, 2)
    assert all(a.dtype == torch.bfloat16 for a in fast)
    for a, b in zip(fast, slow, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-2)
    grads = [torch.randn(2, 4, 2, 8).bfloat16() for _ in range(3)]
    leaf, slow_leaf = (x.clone().requires_grad_() for _ in range(2))
    torch.autograd.backward(rotary.rotated_three(leaf, weight, None, None, *around, 2), grads)
    torch.autograd.backward(rotary.rotated_three_twin(slow_leaf, weight, None, *around, 2), grads)
    torch.testing.assert_close(leaf.grad, slow_leaf.grad, rtol=3e-2, atol=1e-1)


def test_the_twin_rotates_as_modernbert_does() -> None:
    from transformers.models.modernbert.modeling_modernbert import apply_rotary_pos_emb

    q, k = torch.randn(2, 2, 3, 5, 6).unbind()
    around = angles(1, 5, 6)
    expected = apply_rotary_pos_emb(q, k, *around)
    for one, rotated in zip((q, k), expected, strict=True):
        mine = rotary.rotate(one.transpose(1, 2), *around).transpose(1, 2)
        torch.testing.assert_close(mine, rotated)
