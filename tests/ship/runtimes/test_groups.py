"""Weights in two or three bits, with a range for each group of rows, as a slow loop would round them."""

import numpy as np
import pytest

from bermo.ship.runtimes.groups import GROUPS, SHARES
from bermo.ship.runtimes.packed import Coding, pack, unpack

WEIGHTS = np.random.default_rng(0).normal(size=(256, 24)).astype(np.float32)


def rounded(group: np.ndarray, share: float, bits: int) -> np.ndarray:
    """The weights in a share of their range."""
    middle, half = (group.max() + group.min()) / 2, (group.max() - group.min()) / 2
    low, step = middle - share * half, 2 * share * half / (2**bits - 1)
    return np.asarray(low + np.rint((group - low) / step).clip(0, 2**bits - 1) * step)


@pytest.mark.parametrize(("coding", "bits"), [("groups2", 2), ("groups3", 3), ("groups8", 8)])
@pytest.mark.parametrize("rows", [256, 3])
def test_every_group_is_rounded_in_the_range_of_its_least_error(coding: Coding, bits: int, rows: int) -> None:
    weights = WEIGHTS[:rows]
    made = unpack(pack(weights, coding))
    size = rows // min(GROUPS, rows)
    for start in range(0, rows, size):
        group = weights[start : start + size].astype(np.float64)
        tried = [rounded(group, share, bits) for share in (SHARES if bits < 8 else (1.0,))]
        expected = min(tried, key=lambda values: float(np.square(values - group).sum()))
        np.testing.assert_allclose(made[start : start + size], expected, atol=1e-5)
        assert len(np.unique(made[start : start + size].round(5))) <= 2**bits


def test_a_narrow_range_loses_half_of_what_the_whole_one_loses_in_two_bits() -> None:
    weights = np.random.default_rng(3).normal(size=(256, 256)).astype(np.float32)
    whole = np.concatenate([rounded(weights[row : row + 2], 1.0, 2) for row in range(0, 256, 2)])
    made = unpack(pack(weights, "groups2"))
    assert np.square(made - weights).sum() < 0.5 * np.square(whole - weights).sum()


def test_pruned_weights_stay_zero_and_three_bits_are_a_tenth() -> None:
    weights = WEIGHTS * (np.random.default_rng(1).random(WEIGHTS.shape) < 0.3)
    weights[:2] = 0
    made = unpack(pack(weights.astype(np.float32), "groups3"))
    assert not made[weights == 0].any()
    assert np.isfinite(made).all()
    whole = np.random.default_rng(2).normal(size=(512, 512)).astype(np.float32)
    assert pack(whole, "groups3").num_bytes < whole.nbytes / 9


def test_streams_that_do_not_fit_are_refused() -> None:
    packed = pack(WEIGHTS, "groups3")
    broken = type(packed)(**{**vars(packed), "scales": packed.scales[:6]})
    with pytest.raises((ValueError, IndexError)):
        unpack(broken)
