"""What is more than chance: against scipy's exact tests, and Holm's correction worked by hand."""

from collections.abc import Callable, Sequence
from random import Random

import pytest
from scipy import stats

from bermo.analyse.attention import attention_section, measure_attention
from bermo.analyse.attribution import attribution_section, measure_attribution
from bermo.analyse.between import measure_between
from bermo.analyse.certainty import (
    LEVEL,
    Judged,
    ends_left_out,
    ends_of_least,
    ends_of_mean,
    ends_of_share,
    holm,
    least_seen,
    least_told,
    least_within,
    told,
)
from bermo.analyse.effective import effective_section, measure_effective
from bermo.analyse.effects import measure_effects
from bermo.analyse.fixed_patterns import fixed_patterns_section, measure_fixed_patterns
from bermo.analyse.geometry import measure_geometry
from bermo.analyse.geometry_figures import geometry_section
from bermo.analyse.head_figures import effects_section
from bermo.analyse.identity import identity_section, measure_identity
from bermo.analyse.layer_figures import between_section, layers_section
from bermo.analyse.layers import measure_layers
from bermo.analyse.tuned import measure_moved, moved_section
from bermo.analyse.words import frequent_words, layer_names, word_keys
from bermo.data.intervals import sign_test
from bermo.vectors import Encoder, stream_vectors
from tests.analyse.conftest import TEXTS, build

SAY = "too few texts for an interval"


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


def answers(*wrong: int, rows: int) -> list[Judged]:
    """Models of which each gets so many rows wrong, the first ones."""
    return [Judged(score=100 - 100 * n / rows, right=(False,) * n + (True,) * (rows - n)) for n in wrong]


def test_the_least_size_is_the_first_that_is_near_the_largest() -> None:
    assert least_within((0.0, 0.5, 1.0), (50.0, 89.0, 90.0), 1.0) == 0.5
    assert least_within((1.0, 0.5, 0.0), (90.0, 88.9, 50.0), 1.0) == 1.0
    assert least_within(range(1, 3), (float("nan"),) * 2, 0.5) == 2


def test_the_interval_of_the_least_size_is_that_of_a_slow_bootstrap() -> None:
    rows, sizes, points = 200, (1, 2, 3, 4), 1.0
    judged = answers(40, 12, 9, 8, rows=rows)
    random, found = Random(0), []
    for _ in range(2000):
        drawn = random.choices(range(rows), k=rows)
        scores = [100 * sum(item.right[row] for row in drawn) / rows for item in judged if item.right]
        found.append(least_within(sizes, scores, points + 1e-9))
    found.sort()
    assert ends_of_least(sizes, judged, points) == (found[50], found[1949]) == (2, 4)


def test_of_few_rows_or_rows_that_are_not_right_or_wrong_no_least_size_has_an_interval() -> None:
    few = answers(3, 0, rows=19)
    numbers = [Judged(score=80.0, right=None), Judged(score=81.0, right=None)]
    for judged, rows, metric, say in (
        (few, 19, "accuracy", "too few rows for an interval"),
        (numbers, 500, "pearson", "no interval: rows of pearson are not right or wrong"),
    ):
        ends = ends_of_least((1, 2), judged, 0.5)
        assert ends is None
        assert least_told(2, ends, ".0f", metric, rows) == f"2 ({say})"
    assert least_told(0.4, (0.2, 0.7), ".0%", "accuracy", 64) == "40 % (20 … 70)"
    assert least_told(0.4, (0.2, 0.7), ".0%", "f1", 64) == "40 % (20 … 70 by accuracy)"


def test_a_noisy_curve_of_few_rows_has_a_wide_interval_and_one_of_many_rows_a_narrow_one() -> None:
    sizes = (1, 2, 3)
    widths = []
    for rows in (40, 4000):
        low, high = ends_of_least(sizes, answers(rows // 2, rows // 20, rows // 20, rows=rows), 1.0) or (0, 0)
        widths.append(high - low)
    assert widths[1] == 0 <= widths[0]


def test_an_interval_stays_within_0_and_100() -> None:
    low, high = Judged(score=100.0, right=(True,) * 20).interval or (0, 0)
    assert 80 < low < 90
    assert high == 100
    assert Judged(score=3.0, right=None).interval is None


def test_the_interval_of_a_mean_is_student_s() -> None:
    values = [0.2, 0.5, 0.4, 0.9, 0.1]
    expected = stats.t.interval(0.95, 4, loc=sum(values) / 5, scale=stats.sem(values))
    assert ends_of_mean(values) == pytest.approx(expected)
    assert ends_of_mean(values, [1.0] * 5) == pytest.approx(expected)
    assert ends_of_mean(values[:3]) is None


def test_without_one_text_each_the_interval_of_a_mean_is_student_s_too() -> None:
    values = [0.2, 0.5, 0.4, 0.9, 0.1]
    without = [(sum(values) - value) / 4 for value in values]
    assert ends_left_out(sum(values) / 5, without) == pytest.approx(ends_of_mean(values))


def test_tokens_that_agree_within_texts_are_worth_one_a_text() -> None:
    apart = ends_of_share([1, 0] * 50, [1] * 100)
    together = ends_of_share([10, 0] * 5, [10] * 10)
    assert apart is not None
    assert together is not None
    assert together[1] - together[0] > 2.5 * (apart[1] - apart[0])
    whole = ends_of_share([10] * 10, [10] * 10)
    assert whole is not None
    assert whole[0] < 0.75
    assert whole[1] == pytest.approx(1)
    assert ends_of_share([10] * 3, [10] * 3) is None


def test_the_interval_of_a_share_holds_it_in_95_of_100_draws() -> None:
    rng, inside = Random(0), 0
    for _ in range(400):
        shares = [rng.choice([0.1, 0.9]) for _ in range(40)]
        hits = [sum(rng.random() < share for _ in range(20)) for share in shares]
        low, high = ends_of_share(hits, [20] * 40) or (1, 0)
        inside += low <= 0.5 <= high
    assert 0.92 < inside / 400 < 0.98


def test_a_number_is_told_with_its_interval_or_that_texts_are_too_few() -> None:
    assert told(0.5, (0.25, 0.75)) == "0.500 (0.250 … 0.750)"
    assert told(0.5, (0.25, 0.75), ".1%") == "50.0 % (25.0 … 75.0)"
    assert told(0.5, None) == f"0.500 ({SAY})"


def _geometry(encoder: Encoder, texts: Sequence[str]) -> str:
    chosen = frequent_words(encoder.tokenizer, word_keys(encoder.tokenizer, texts, 60), 5, 300)
    measured = measure_geometry(stream_vectors(encoder, texts), layer_names(encoder), chosen)
    return geometry_section({"m": measured}).text


SENTENCES: dict[str, Callable[[Encoder, Sequence[str]], str]] = {
    "geometry": _geometry,
    "identity": lambda e, t: identity_section({"m": measure_identity(e, t, 60)}).text,
    "attribution": lambda e, t: attribution_section({"m": measure_attribution(e, t)}).text,
    "attention": lambda e, t: attention_section({"m": measure_attention(e, t, 60)}).text,
    "effective": lambda e, t: effective_section({"m": measure_effective(e, t, 16)}).text,
    "effects": lambda e, t: effects_section({"m": measure_effects(e, t, 60)}).text,
    "layers": lambda e, t: layers_section({"m": measure_layers(e, t, 60)}).text,
    "between": lambda e, t: between_section({"m": measure_between(e, build(with_mix=True), t, 60)}).text,
    "moved": lambda e, t: moved_section({"m": measure_moved(e, build(), t, 60)}).text,
}
MANY = tuple(TEXTS) * 4


@pytest.mark.parametrize("name", SENTENCES)
def test_a_sentence_has_an_interval_or_says_that_texts_are_too_few(name: str, encoder: Encoder) -> None:
    many = SENTENCES[name](encoder, MANY)
    assert " … " in many
    assert SAY not in many
    few = SENTENCES[name](encoder, MANY[:4:2] * (1 if name != "effective" else 3))
    assert " … " not in few
    assert SAY in few


@pytest.mark.parametrize(
    "say",
    [
        lambda e, t: attention_section({"m": measure_attention(e, t, 60)}).text,
        lambda e, t: fixed_patterns_section({"m": measure_fixed_patterns(e, t, 60)}).text,
    ],
    ids=["classes", "fixed patterns"],
)
def test_a_count_of_heads_is_corrected_for_all_of_them(
    say: Callable[[Encoder, Sequence[str]], str], encoder: Encoder
) -> None:
    assert "corrected for 6 heads" in say(encoder, MANY)
    assert "0 of them beyond chance" in say(encoder, MANY[:2])
