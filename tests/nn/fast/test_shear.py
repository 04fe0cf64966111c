"""Scores by distance become scores by token, in Triton's interpreter, as in a loop over all pairs."""

import pytest
import torch
from torch import Tensor

ours = pytest.importorskip("bermo.nn.fast.shear", reason="needs Triton")
B, H, SCALE = 2, 3, 0.3


def by_pairs(first: Tensor, second: Tensor | None, mask: Tensor | None) -> Tensor:
    """s_ij, pair by pair."""
    num_tokens = first.shape[2]
    rows = []
    for i in range(num_tokens):
        for j in range(num_tokens):
            score = first[:, :, i, num_tokens + j - i].float()
            if second is not None:
                score = score + second[:, :, j, num_tokens + j - i].float()
            rows.append(SCALE * score)
    scores = torch.stack(rows, -1).view(B, H, num_tokens, num_tokens)
    return scores if mask is None else scores.masked_fill(~mask, ours.HIDDEN)


def mask_of(kind: str, num_tokens: int) -> Tensor | None:
    real = torch.arange(num_tokens) < torch.tensor([num_tokens, num_tokens - 2])[:, None]
    return {
        "none": None,
        "keys": real[:, None, None, :],
        "pairs": (real[:, :, None] & real[:, None, :])[:, None],
        "one for all texts": ~torch.eye(num_tokens, dtype=torch.bool)[None, None],
    }[kind]


def scores_by(order: str, num_tokens: int, dtype: torch.dtype) -> Tensor:
    """Scores by distance, in memory head by head as one product for all texts makes them, or text by text."""
    scores = torch.randn(H, B, num_tokens, 2 * num_tokens, dtype=dtype).transpose(0, 1)
    return (scores if order == "heads first" else scores.contiguous()).requires_grad_()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("num_tokens", "kind", "order", "has_second"),
    [
        (5, "none", "heads first", True),
        (5, "pairs", "heads first", True),
        (33, "keys", "heads first", True),
        (32, "one for all texts", "texts first", True),
        (7, "pairs", "texts first", False),
        (1, "none", "texts first", True),
    ],
)
def test_each_score_and_its_gradient_move_to_their_pair(
    num_tokens: int, kind: str, order: str, has_second: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    first, other = scores_by(order, num_tokens, dtype), scores_by(order, num_tokens, dtype)
    second = other if has_second else None
    given = [first, other] if has_second else [first]
    mask = mask_of(kind, num_tokens)
    expected = by_pairs(first, second, mask)
    grad = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, given, grad)
    for function in (ours.shear, ours.shear_twin):
        scores = function(first, second, mask, SCALE)
        assert scores.dtype == dtype
        torch.testing.assert_close(scores, expected.to(dtype))
        found = torch.autograd.grad(scores, given, grad.to(dtype))
        for mine, theirs in zip(found, wanted, strict=True):
            torch.testing.assert_close(
                mine, theirs, rtol=2e-2 if dtype == torch.bfloat16 else 1e-6, atol=1e-6
            )


def test_gradients_lie_in_memory_as_the_scores_do_and_no_scores_are_kept() -> None:
    first, second = (scores_by("heads first", 6, torch.float32) for _ in range(2))
    scores = ours.shear(first, second, None, 1.0)
    found = torch.autograd.grad(scores, (first, second), torch.ones_like(scores), retain_graph=True)
    assert [grad.stride() for grad in found] == [first.stride(), second.stride()]
    assert scores.grad_fn.saved_tensors == (None,)


def attention(device: str, dtype: torch.dtype) -> list[Tensor]:
    """The gradients of torch's own attention with scores of ours, where the second text is half padding."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(B, H, 16, 8, dtype=dtype, device=device, requires_grad=True) for _ in range(3))
    first = torch.randn(B, H, 16, 32, dtype=dtype, device=device, requires_grad=True)
    real = torch.arange(16, device=device) < torch.tensor([16, 8], device=device)[:, None]
    bias = ours.shear(first, None, (real[:, :, None] & real[:, None, :])[:, None], SCALE)
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, bias)
    # No loss reads padding: its part of the gradient is zero, and stays so if nothing is infinite.
    return list(torch.autograd.grad((out.float() * real[:, None, :, None]).sum(), (q, k, v, first)))


def test_a_token_that_sees_none_and_is_not_read_gets_no_gradient() -> None:
    for grad in attention("cpu", torch.float32):
        assert grad.isfinite().all()
        assert (grad[1, :, 8:] == 0).all()


def test_a_hidden_score_is_below_all_others_and_its_rounding_is_small() -> None:
    hidden = torch.tensor(ours.HIDDEN)
    assert (hidden + 1000).exp() == 0
    # The score and the logarithm of its row's sum are rounded each by itself; by -1e30 they are 1e22 apart.
    assert torch.nextafter(hidden, torch.tensor(0.0)) - hidden < 0.01


@pytest.mark.gpu
def test_a_token_that_sees_none_and_is_not_read_gets_no_gradient_on_a_gpu() -> None:
    for grad in attention("cuda", torch.bfloat16):
        assert grad.isfinite().all()
