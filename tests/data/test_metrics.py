"""Metrics against slow, obvious versions and against cases worked by hand."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bermo.data import metrics
from bermo.errors import BermoError

classes = st.integers(2, 4).flatmap(
    lambda k: st.lists(st.tuples(st.integers(0, k - 1), st.integers(0, k - 1)), min_size=1, max_size=30)
)
pairs = st.lists(
    st.tuples(st.integers(-9, 9).map(float), st.integers(-9, 9).map(float)), min_size=2, max_size=30
)


def _columns(rows: list[tuple[int, int]]) -> tuple[metrics.Ints, metrics.Ints]:
    values = np.array(rows)
    return values[:, 0], values[:, 1]


@given(classes)
def test_f1_and_accuracy_equal_counting(rows: list[tuple[int, int]]) -> None:
    predicted, gold = _columns(rows)
    true = sum(p == 1 and g == 1 for p, g in rows)
    false = sum(p == 1 and g != 1 for p, g in rows)
    missed = sum(p != 1 and g == 1 for p, g in rows)
    expected = 2 * true / (2 * true + false + missed) if true + false + missed else 0.0
    assert metrics.f1(predicted, gold) == pytest.approx(expected)
    assert metrics.accuracy(predicted, gold) == pytest.approx(sum(p == g for p, g in rows) / len(rows))


@given(classes)
def test_matthews_equals_the_correlation_of_one_hot_vectors(rows: list[tuple[int, int]]) -> None:
    """Gorodkin's definition, term by term: the covariance of indicator vectors over their deviations."""
    n = len(rows)

    def covariance(a: int, b: int) -> float:
        total = 0.0
        for k in range(4):
            x, y = [row[a] == k for row in rows], [row[b] == k for row in rows]
            total += sum((p - sum(x) / n) * (q - sum(y) / n) for p, q in zip(x, y, strict=True))
        return total

    below = math.sqrt(covariance(0, 0) * covariance(1, 1))
    expected = covariance(0, 1) / below if below > 1e-12 else 0.0
    assert metrics.matthews(*_columns(rows)) == pytest.approx(expected, abs=1e-9)


def test_matthews_of_a_case_worked_by_hand() -> None:
    predicted, gold = np.array([1, 1, 1, 0, 0, 1]), np.array([1, 1, 0, 0, 1, 1])
    true, none, false, missed = 3, 1, 1, 1
    expected = (true * none - false * missed) / math.sqrt(4 * 4 * 2 * 2)
    assert metrics.matthews(predicted, gold) == pytest.approx(expected)


def test_macro_f1_is_the_mean_over_classes() -> None:
    predicted, gold = np.array([0, 0, 1, 2]), np.array([0, 1, 1, 0])
    assert metrics.macro_f1(predicted, gold) == pytest.approx((1 / 2 + 2 / 3 + 0) / 3)


@given(pairs)
def test_spearman_equals_pearson_of_ranks_counted_one_by_one(
    rows: list[tuple[float, float]],
) -> None:
    def ranks(values: list[float]) -> list[float]:
        return [sum(w < v for w in values) + (values.count(v) + 1) / 2 for v in values]

    def pearson(x: list[float], y: list[float]) -> float:
        mx, my = sum(x) / len(x), sum(y) / len(y)
        below = math.sqrt(sum((a - mx) ** 2 for a in x) * sum((b - my) ** 2 for b in y))
        return sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / below if below else 0.0

    x, y = [list(column) for column in zip(*rows, strict=True)]
    if len(set(x)) > 1 and len(set(y)) > 1:
        assert metrics.pearson(np.array(x), np.array(y)) == pytest.approx(pearson(x, y), abs=1e-9)
        expected = pearson(ranks(x), ranks(y))
        assert metrics.spearman(np.array(x), np.array(y)) == pytest.approx(expected, abs=1e-9)


def test_a_constant_prediction_correlates_with_nothing() -> None:
    constant, gold = np.full(5, 0.1, dtype=np.float32), np.arange(5.0)
    assert metrics.pearson(constant, gold) == 0.0
    assert metrics.spearman(constant, gold) == 0.0
    assert metrics.pearson(1e-200 * gold, gold) == pytest.approx(1.0)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_what_is_not_a_number_has_no_rank_and_no_correlation(wrong: float) -> None:
    gold = np.arange(4.0)
    for measure in (metrics.pearson, metrics.spearman):
        with pytest.raises(BermoError, match="1 of 4 numbers are infinite or not a number"):
            measure(np.array([0.0, 1.0, wrong, 3.0]), gold)


def _entities_by_rules(tags: list[str]) -> set[tuple[str, int, int]]:
    """The rules of conlleval for a chunk's start and end, written out pair by pair."""
    found, start = set(), 0
    split = [("O", "")] + [(t[0], t[2:]) for t in tags] + [("O", "")]
    for place in range(1, len(split)):
        (before, kind), (now, named) = split[place - 1], split[place]
        ends = before != "O" and (now in ("B", "O") or kind != named)
        starts = now != "O" and (now == "B" or before == "O" or kind != named)
        if ends:
            found.add((kind, start, place - 2))
        if starts:
            start = place - 1
    return found


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5])
def test_entities_follow_conlleval_on_all_short_tag_sequences(length: int) -> None:
    for tags in itertools.product(["O", "B-X", "I-X", "B-Y", "I-Y"], repeat=length):
        assert metrics.entities(tags) == _entities_by_rules(list(tags)), tags


def test_entity_f1_wants_span_and_type() -> None:
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["I-ORG", "B-ORG", "O"]]
    guess = [["B-PER", "O", "O", "B-LOC"], ["B-ORG", "B-ORG", "B-LOC"]]
    scores = metrics.entity_scores(guess, gold)
    assert scores.precision == pytest.approx(3 / 5)
    assert scores.recall == pytest.approx(3 / 4)
    assert scores.f1 == pytest.approx(2 * 3 / 9)
    assert metrics.entity_scores([["O"]], [["O"]]).f1 == 0.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Eiffel Tower!", "eiffel tower"),
        ("an apple, a day", "apple day"),
        ("theatre", "theatre"),
        ("the", ""),
        ("U.S.", "us"),
        ("don’t", "don’t"),
    ],
)
def test_answers_are_normalised_as_the_official_script_does(text: str, expected: str) -> None:
    assert metrics.normalise_answer(text) == expected


def test_answer_scores_of_cases_worked_by_hand() -> None:
    assert metrics.exact_match("The cat.", "cat") == 1.0
    # Two common words of three and four: P = 2/3, R = 2/4.
    assert metrics.answer_f1("big red cat", "big old red dog") == pytest.approx(4 / 7)
    assert metrics.answer_f1("red red", "red cat") == pytest.approx(1 / 2)
    assert metrics.answer_f1("", "") == 0.0
    assert metrics.answer_f1("", "", has_no_answer=True) == 1.0
    assert metrics.answer_f1("cat", "", has_no_answer=True) == 0.0


def test_the_best_gold_answer_counts_and_unanswerable_questions_want_nothing() -> None:
    scores = metrics.answer_scores(["cat", "", "dog"], [["old cat", "cat"], [], []], has_no_answer=True)
    assert scores.exact_match.tolist() == [1.0, 1.0, 0.0]
    assert scores.f1.tolist() == [1.0, 1.0, 0.0]
    assert scores.is_answerable.tolist() == [True, False, False]
