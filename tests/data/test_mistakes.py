"""How far probabilities can be believed, the surest mistakes, and what changed, beside slow counts."""

from collections.abc import Callable

import numpy as np
import pytest

from bermo.data.evaluation import evaluate
from bermo.data.features import Features
from bermo.data.mistakes import Answers, answers_of, calibrate, changes, expected_error
from bermo.data.rows import TextRows

Make = Callable[..., Features]
NAMES = ("ant", "bee", "cat")


def drawn(count: int, honest: bool = True) -> Answers:
    """Answers that are right as often as their probability says, or always half as often."""
    random = np.random.default_rng(1)
    probability_N = random.uniform(0.4, 1.0, count)
    is_right_N = random.random(count) < probability_N * (1 if honest else 0.5)
    return Answers(given_N=np.ones(count, int), probability_N=probability_N, gold_N=is_right_N.astype(int))


def some(make: Make, count: int = 60) -> tuple[Features, list[np.ndarray]]:
    random = np.random.default_rng(0)
    gold = random.integers(0, 3, count)
    rows = TextRows([f"a cat {k}" for k in range(count)], None, [NAMES[k] for k in gold])
    return make(rows, labels=NAMES, max_unknown=1.0), list(random.normal(size=(count, 3)) + np.eye(3)[gold])


def test_the_expected_error_is_the_mean_gap_of_ten_bins() -> None:
    answers = drawn(300)
    total = 0.0
    for low in range(10):
        rows = [k for k, p in enumerate(answers.probability_N) if low / 10 <= p < (low + 1) / 10]
        if rows:
            right = np.mean([answers.right_N[k] for k in rows])
            total += len(rows) / 300 * abs(right - np.mean([answers.probability_N[k] for k in rows]))
    assert expected_error(answers.probability_N, answers.right_N) == pytest.approx(total)
    found = calibrate(answers)
    assert found.error == pytest.approx(100 * total)
    assert sum(item.num_rows for item in found.bins) == 300
    assert all(item.interval[0] <= item.right <= item.interval[1] for item in found.bins)
    assert expected_error(np.array([1.0, 1.0]), np.array([True, False])) == 0.5


def test_right_probabilities_are_off_by_chance_alone_and_wrong_ones_by_more() -> None:
    honest, loud = calibrate(drawn(400)), calibrate(drawn(400, honest=False))
    assert 0 < honest.error <= honest.by_chance
    assert loud.interval[0] > loud.by_chance
    assert calibrate(drawn(4000)).by_chance < honest.by_chance


def test_the_surest_mistakes_come_first_with_their_texts(make: Make) -> None:
    features, logits = some(make)
    found, answers = evaluate(features, logits).mistakes, answers_of(features, logits)
    wrong = [k for k in range(60) if not answers.right_N[k]]
    assert sorted(item.row - 1 for item in found) == wrong[:50]
    assert [item.probability for item in found] == sorted((answers.probability_N[wrong]), reverse=True)
    assert all(item.text == (f"a cat {item.row - 1}",) and item.label != item.given for item in found)
    assert all(item.label == features.rows.labels[item.row - 1] for item in found)  # type: ignore[union-attr, index]


def test_what_changed_is_counted_both_ways(make: Make) -> None:
    features, logits = some(make)
    before = answers_of(features, logits)
    worse = [-one if k % 2 else one for k, one in enumerate(logits)]
    found = changes(features, answers_of(features, worse), before, "dense")
    now = answers_of(features, worse).right_N
    assert found.num_lost == sum(a and not b for a, b in zip(before.right_N, now, strict=True)) > 0
    assert found.num_won == sum(b and not a for a, b in zip(before.right_N, now, strict=True))
    assert {item.row - 1 for item in found.lost} == set(np.flatnonzero(before.right_N & ~now))
    assert found.score == pytest.approx(100 * before.right_N.mean())
    assert changes(features, before, before, "dense").p == 1.0
