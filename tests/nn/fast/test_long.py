"""Attention over long texts equals attention with a mask of all pairs of tokens."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from bermo.nn.fast import long
from bermo.nn.fast.long import Sight, attend_long, flash, look, run_flash

SCALE = 0.3
WINDOWS = (None, 3, 70)


def given(num_tokens: int) -> tuple[list[Tensor], Tensor]:
    """Queries, keys and values, and the real tokens: padding behind, none, and before."""
    torch.manual_seed(0)
    real = torch.ones(3, num_tokens, dtype=torch.bool)
    real[0, num_tokens // 2 :] = False
    real[2, : num_tokens // 3] = False
    return [torch.randn(3, 2, num_tokens, 8, requires_grad=True) for _ in range(3)], real


def slow(q: Tensor, k: Tensor, v: Tensor, real: Tensor, window: int | None) -> Tensor:
    places = torch.arange(q.shape[2])
    near = (places - places[:, None]).abs() <= (q.shape[2] if window is None else window)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=near & real[:, None, None], scale=SCALE)


def assert_real_alike(found: Tensor, expected: Tensor, parts: list[Tensor], real: Tensor) -> None:
    """Outputs of real tokens, and the gradients from them."""
    at = real[:, None, :, None]
    torch.testing.assert_close(found * at, expected * at, rtol=1e-4, atol=1e-5)
    grad = torch.randn_like(found) * at
    slopes = [torch.autograd.grad(one, parts, grad) for one in (found, expected)]
    for a, b in zip(*slopes, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("num_tokens", [64, 150, 193])
def test_real_tokens_see_what_a_mask_of_all_pairs_lets_them_see(num_tokens: int, window: int | None) -> None:
    parts, real = given(num_tokens)
    found = attend_long(*parts, look(real, window), 0.0, SCALE)
    assert_real_alike(found, slow(*parts, real, window), parts, real)


@pytest.mark.parametrize("window", WINDOWS)
def test_tokens_that_are_left_out_in_the_middle_are_not_seen(window: int | None) -> None:
    parts, real = given(100)
    real[1, 20:50] = False
    found = attend_long(*parts, look(real, window), 0.0, SCALE)
    assert_real_alike(found, slow(*parts, real, window), parts, real)


def run_slowly(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    of_queries: Tensor,
    of_keys: Tensor,
    longest: int,
    window: int | None,
    p: float,
    scale: float,
) -> Tensor:
    """What the flash kernel computes: windows lie as if queries and keys of a run ended together."""
    outputs = []
    for run in range(len(of_keys) - 1):
        mine = q[of_queries[run] : of_queries[run + 1]].transpose(0, 1)
        keys, values = (x[of_keys[run] : of_keys[run + 1]].transpose(0, 1) for x in (k, v))
        last = keys.shape[1] - mine.shape[1]
        gaps = torch.arange(keys.shape[1]) - torch.arange(mine.shape[1])[:, None] - last
        near = gaps.abs() <= (longest if window is None else window)
        seen = functional.scaled_dot_product_attention(mine, keys, values, attn_mask=near, scale=scale)
        outputs.append(seen.transpose(0, 1))
    return torch.cat(outputs)


@pytest.mark.parametrize("window", WINDOWS)
def test_the_runs_that_the_flash_kernel_reads_are_those_of_the_texts(
    window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long, "run_flash", run_slowly)
    monkeypatch.setattr(long, "_fits_flash", lambda q: True)
    parts, real = given(60)
    found = attend_long(*parts, Sight(real, window, is_flash=True), 0.0, SCALE)
    assert_real_alike(found, slow(*parts, real, window), parts, real)
    if window is not None:
        # Padding sees the padding near it, in either way.
        others = attend_long(*parts, Sight(real, window), 0.0, SCALE)
        torch.testing.assert_close(found, others, rtol=1e-4, atol=1e-5)


def test_a_text_of_nothing_but_padding_gives_zeros() -> None:
    parts, real = given(64)
    real[1] = False
    queries, keys = Sight(real, None).bounds
    assert queries.tolist() == [0, 64, 64, 64, 128, 128, 192]
    assert keys.tolist() == [0, 32, 64, 128, 128, 128 + 21, 192]
    assert not attend_long(*parts, look(real, None), 0.0, SCALE)[1].any()


def test_the_flash_kernel_takes_what_it_is_given() -> None:
    rows = torch.empty(2 * 512, 3, 2, 64, device="meta", dtype=torch.bfloat16, requires_grad=True)
    bounds = torch.empty(5, dtype=torch.int32, device="meta")
    out = run_flash(*rows.unbind(1), bounds, bounds, 512, 64, 0.1, SCALE)
    assert out.shape == (1024, 2, 64)
    out.sum().backward()
    assert rows.grad is not None


def test_only_a_gpu_has_the_flash_kernel_and_only_a_batch_without_padding_no_mask() -> None:
    _, real = given(12)
    with flash():
        assert not look(real, 3).is_flash
    assert not look(real, None).is_whole
    assert look(torch.ones_like(real), None).is_whole


def test_half_precision_and_dropout_are_computed() -> None:
    parts, real = given(100)
    halves = [part.bfloat16() for part in parts]
    whole = attend_long(*parts, look(real, 5), 0.0, SCALE)
    half = attend_long(*halves, look(real, 5), 0.0, SCALE)
    torch.testing.assert_close(half.float(), whole, rtol=0.05, atol=0.05)
    torch.manual_seed(0)
    drawn = torch.stack([attend_long(*parts, look(real, 5), 0.2, SCALE) for _ in range(20)]).mean(0)
    assert (drawn - whole).abs().mean() < 0.1
