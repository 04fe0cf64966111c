"""Our metrics, which the package computes in numpy alone, against scipy's and scikit-learn's."""

import numpy as np
import pytest
import sklearn.metrics
from scipy import stats

from bermo.data import metrics

CLASSES = pytest.mark.parametrize("classes", [2, 3, 7])
SEEDS = pytest.mark.parametrize("seed", range(5))


def answers(classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Answers that are right more often than not, and the right ones."""
    random = np.random.default_rng(seed)
    gold = random.integers(0, classes, 200)
    is_right = random.random(200) < 0.6
    return np.where(is_right, gold, random.integers(0, classes, 200)), gold


@SEEDS
@CLASSES
def test_scores_of_classes_are_scikit_learns(classes: int, seed: int) -> None:
    predicted, gold = answers(classes, seed)
    assert metrics.accuracy(predicted, gold) == pytest.approx(sklearn.metrics.accuracy_score(gold, predicted))
    assert metrics.matthews(predicted, gold) == pytest.approx(
        sklearn.metrics.matthews_corrcoef(gold, predicted)
    )
    assert metrics.macro_f1(predicted, gold) == pytest.approx(
        sklearn.metrics.f1_score(gold, predicted, average="macro")
    )
    for positive in range(classes):
        expected = sklearn.metrics.f1_score(gold == positive, predicted == positive)
        assert metrics.f1(predicted, gold, positive) == pytest.approx(expected)


@SEEDS
@pytest.mark.parametrize("decimals", [0, 1, 8])
def test_correlations_are_scipys_also_with_equal_values(decimals: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    x = random.normal(0, 2, 100).round(decimals)
    y = (x + random.normal(0, 2, 100)).round(decimals)
    assert metrics.pearson(x, y) == pytest.approx(stats.pearsonr(x, y).statistic)
    assert metrics.spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
