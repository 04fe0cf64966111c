"""What is more than chance: against scipy's exact tests, and Holm's correction worked by hand."""

import pytest
from scipy import stats

from bermo.analyse.certainty import LEVEL, Judged, holm, least_seen
from bermo.data.intervals import sign_test


@pytest.mark.parametrize(("lost", "won"), [(0, 0), (1, 0), (3, 1), (6, 0), (2, 9), (5, 5)])
def test_the_sign_test_is_the_exact_binomial_one(lost: int, won: int) -> None:
    before = [True] * lost + [False] * won + [True, False]
    after = [False] * lost + [True] * won + [True, False]
    expected = stats.binomtest(lost, lost + won).pvalue if lost + won else 1.0
    assert sign_test(before, after) == pytest.approx(expected)


def test_holm_multiplies_the_smallest_by_the_number_of_tries() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0]


@pytest.mark.parametrize("tries", [1, 12, 42, 144])
def test_so_many_rows_must_change_to_be_seen(tries: int) -> None:
    rows = least_seen(tries)
    p = [sign_test([True] * count, [False] * count) * tries for count in (rows - 1, rows)]
    assert p[0] >= LEVEL > p[1]


def test_an_interval_stays_within_0_and_100() -> None:
    low, high = Judged(score=100.0, right=(True,) * 20).interval or (0, 0)
    assert 80 < low < 90
    assert high == 100
    assert Judged(score=3.0, right=None).interval is None
