"""Truths of pairs as bits, in Triton's interpreter, are those of the mask, and dropout's have its chance."""

import pytest
import torch
from torch import Tensor

bits = pytest.importorskip("bermo.nn.fast.attend_bits", reason="needs Triton")
CPU = torch.device("cpu")


def masks(num_tokens: int) -> dict[str, Tensor | None]:
    real = torch.arange(num_tokens) < torch.tensor([num_tokens, num_tokens - 2])[:, None]
    return {
        "none": None,
        "padding": real[:, None, None, :],
        "padding of all pairs": real[:, None, None, :].expand(2, 1, num_tokens, num_tokens).contiguous(),
        "of each head": torch.rand(2, 3, num_tokens, num_tokens) > 0.5,
        "of all texts": torch.ones(num_tokens, num_tokens).tril().bool(),
    }


@pytest.mark.parametrize("num_tokens", [5, 40, 130])
@pytest.mark.parametrize("kind", masks(3))
def test_a_mask_is_kept_as_bits(num_tokens: int, kind: str) -> None:
    torch.manual_seed(0)
    mask = masks(num_tokens)[kind]
    seen = bits.seen_of(mask, 2, num_tokens, CPU)
    whole = torch.ones(2, 1, num_tokens, num_tokens, dtype=torch.bool) if mask is None else mask
    expected = whole.expand(2, seen.heads, num_tokens, num_tokens).flatten(0, 1)
    assert torch.equal(bits.truths(seen.bits, num_tokens), expected)
    last = (expected.any(1) * torch.arange(1, num_tokens + 1)).amax(1)
    assert torch.equal(seen.ends.amax(1), last.int())
    beyond = bits.truths(seen.bits, seen.bits.shape[-1])
    assert not beyond[:, num_tokens:].any()
    assert not beyond[:, :, num_tokens:].any()


def test_every_pair_is_dropped_with_the_chance_and_by_a_number_of_its_own() -> None:
    seed, p = torch.tensor([7]), 0.3
    kept = bits.truths(bits.draw(seed, 3, 40, p), 40)
    assert kept.float().mean().item() == pytest.approx(1 - p, abs=0.02)
    rows = kept.flatten(0, 1)
    assert len({tuple(row.tolist()) for row in rows}) == len(rows)
    assert len({tuple(row.tolist()) for row in rows.T}) == 40
    assert torch.equal(bits.draw(seed, 3, 40, p), bits.draw(seed, 3, 40, p))
    assert not torch.equal(bits.draw(seed, 3, 40, p), bits.draw(seed + 1, 3, 40, p))


def test_a_chance_of_next_to_nothing_keeps_all() -> None:
    assert bits.truths(bits.draw(torch.tensor([7]), 1, 32, 1e-7), 32).all()
