"""Intervals are those of other libraries, and hold the truth as often as they say."""

import numpy as np
import pytest
from scipy import stats

from bermo.data.intervals import bootstrap, wilson


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
