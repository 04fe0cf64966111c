"""Intervals are those of other libraries, and hold the truth as often as they say."""

import numpy as np
import pytest
from scipy import stats

from bermo.data.intervals import bootstrap, share_ends, wilson


@pytest.mark.parametrize(("right", "total"), [(0, 5), (5, 5), (1, 2), (17, 40), (890, 1000)])
def test_wilsons_interval_is_scipys(right: int, total: int) -> None:
    expected = stats.binomtest(right, total).proportion_ci(0.95, method="wilson")
    assert wilson(right, total) == pytest.approx((expected.low, expected.high))


def test_the_bootstrap_of_a_mean_is_near_students_interval_and_the_same_each_time() -> None:
    values = np.random.default_rng(1).normal(3, 2, 400)
    low, high = bootstrap(lambda rows: float(values[rows].mean()), len(values))
    half = 1.96 * values.std(ddof=1) / np.sqrt(len(values))
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.03)
    assert bootstrap(lambda rows: float(values[rows].mean()), len(values)) == (low, high)


def test_a_long_file_is_drawn_fewer_times() -> None:
    calls = []
    bootstrap(lambda rows: float(calls.append(len(rows)) or 0), 100_000)
    assert calls == [100_000] * 200


def test_six_right_answers_of_six_are_not_certain() -> None:
    low, high = share_ends(np.ones(1000), 1.0, 6)
    assert low == pytest.approx(0.61, abs=0.01)
    assert high == pytest.approx(1)
    assert share_ends(np.zeros(1000), 0.0, 6) == pytest.approx((1 - high, 1 - low))
    assert share_ends(np.linspace(0.4, 0.6, 1001), 0.5, 6) == pytest.approx((0.405, 0.595))
