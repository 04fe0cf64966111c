"""Our statistics, which the package computes without scipy, against scipy's."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from bermo.methods.probing.paired import paired
from bermo.runs.results import SeedResult
from bermo.runs.statistics import last_scores, student_t, summarise
from tests.results import seed_result

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("freedom", [*range(1, 40), 99, 100, 499])
def test_students_t_is_scipys(freedom: int) -> None:
    assert student_t(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-8)


@pytest.mark.parametrize("count", [2, 3, 5, 12])
def test_the_interval_over_seeds_is_scipys(count: int) -> None:
    scores = RANDOM.normal(50, 1, count)
    result = summarise([seed_result(seed, score) for seed, score in enumerate(scores.tolist())])
    expected = stats.t.interval(0.95, count - 1, scores.mean(), stats.sem(scores))
    assert result.interval == pytest.approx(expected)
    assert result.deviation == pytest.approx(scores.std(ddof=1))


def test_the_interval_of_a_score_ends_where_the_score_does() -> None:
    def seeds(metric: str) -> list[SeedResult]:
        results = [seed_result(seed, score) for seed, score in enumerate((90.0, 98.0))]
        return [replace(one, metric=metric, last_score=one.score - 88) for one in results]

    result = summarise(seeds("accuracy"))
    assert result.interval == (pytest.approx(94 - 12.706 * 4, abs=0.01), 100.0)
    assert last_scores(result).interval == (0.0, pytest.approx(6 + 12.706 * 4, abs=0.01))
    assert last_scores(summarise(seeds("matthews"))).interval == pytest.approx((-44.82, 56.82), abs=0.01)
    own = summarise(seeds("cost")).interval
    assert own is not None
    assert own[1] > 100


@pytest.mark.parametrize("count", [2, 5, 10])
def test_the_paired_test_is_scipys_exact_permutation_test(count: int) -> None:
    differences = RANDOM.normal(0.5, 1, count)
    ours = paired(differences.tolist())
    theirs = stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", alternative="two-sided", n_resamples=np.inf
    )
    assert ours.p == pytest.approx(theirs.pvalue)
    expected = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert ours.interval == pytest.approx((expected.low, expected.high))
