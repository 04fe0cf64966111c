"""The parts of a mix add up to it."""

import pytest
import torch

from bermo.nn.mix import build_mix
from bermo.nn.mix_parts import layer_parts, layer_shares, projections

KINDS = ["across", "within", "tensor", "raw", "none", "second-to-last", "sum-last-four", "gate"]


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_the_parts_of_a_mix_by_their_shares_are_the_mix(kind: str) -> None:
    torch.manual_seed(0)
    mix = build_mix(kind, 5).eval()
    hidden, mask = [torch.randn(2, 3, 4) for _ in range(5)], torch.tensor([[1, 1, 1], [1, 1, 0]])
    parts, shares = layer_parts(mix, hidden, mask), layer_shares(mix, hidden, mask)
    assert parts is not None
    assert shares is not None
    summed = sum(part * share[:, None, None] for part, share in zip(parts, shares, strict=True))
    torch.testing.assert_close(summed, mix(hidden, mask))
    torch.testing.assert_close(shares.sum(0), torch.ones(2))
    known = projections(mix, hidden, mask)
    assert known is not None
    torch.testing.assert_close(known.sum(0), torch.ones(2, 3))


def test_layers_side_by_side_have_no_shares_and_a_plain_encoder_has_one() -> None:
    hidden, mask = [torch.randn(1, 2, 4) for _ in range(5)], torch.ones(1, 2)
    assert layer_parts(build_mix("concat-last-four", 5), hidden, mask) is None
    assert projections(build_mix("concat-last-four", 5), hidden, mask) is None
    shares = layer_shares(None, hidden, mask)
    assert shares is not None
    assert shares[:, 0].tolist() == [0, 0, 0, 0, 1]
