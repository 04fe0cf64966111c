"""Intervals of counts and the chance of a difference, beside scipy's."""

import pytest
from scipy import stats

from scripts.tables.counts import chance_of_more, counted, share_interval


@pytest.mark.parametrize(("count", "total"), [(0, 10), (10, 10), (3, 5), (1, 1), (35, 35), (2, 7)])
def test_the_interval_of_a_share_is_the_exact_one(count: int, total: int) -> None:
    exact = stats.binomtest(count, total).proportion_ci(method="exact")
    assert share_interval(count, total) == pytest.approx((exact.low, exact.high), abs=1e-9)


@pytest.mark.parametrize(
    ("dead", "total", "other_dead", "other_total"),
    [(10, 10, 0, 10), (3, 3, 0, 3), (5, 5, 2, 5), (1, 5, 0, 5), (0, 5, 2, 5), (0, 3, 0, 3), (4, 9, 3, 4)],
)
def test_the_chance_of_more_dead_is_fisher_s(
    dead: int, total: int, other_dead: int, other_total: int
) -> None:
    table = [[dead, total - dead], [other_dead, other_total - other_dead]]
    wanted = stats.fisher_exact(table, alternative="greater").pvalue
    assert chance_of_more(dead, total, other_dead, other_total) == pytest.approx(wanted)


def test_a_count_is_written_with_its_interval() -> None:
    assert counted(0, 10, "live") == "0 of 10 live (0 … 31 %)"
    assert counted(5, 5, "learn") == "5 of 5 learn (48 … 100 %)"
