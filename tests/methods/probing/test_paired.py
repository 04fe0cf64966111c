"""The paired test against the numbers of a slow count, and the verdict's words."""

import math
from dataclasses import replace
from itertools import product

import pytest

from bermo.errors import BermoError
from bermo.methods.probing.paired import Known, claimed, compare, mean_gains, paired
from tests.results import make_result


def test_the_interval_and_p_are_those_of_a_slow_count() -> None:
    differences = [0.4, 1.0, -0.2, 0.7, 0.3]
    summary = paired(differences)
    larger = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True))) >= sum(differences) - 1e-9
        for signs in product((1, -1), repeat=5)
    ]
    assert summary.p == sum(larger) / 32 == 4 / 32
    assert summary.mean == pytest.approx(0.44)
    assert summary.interval is not None
    # 2.776445 is Student's t for 4 degrees of freedom.
    deviation = math.sqrt(sum((d - 0.44) ** 2 for d in differences) / 4)
    assert summary.interval[1] == pytest.approx(0.44 + 2.776445 * deviation / math.sqrt(5), abs=1e-5)
    assert paired([1.0, 1.1, 0.9, 1.0, 1.2]).p == 2 / 32
    assert paired([1.0]).interval is None
    with pytest.raises(BermoError, match="at least one pair"):
        paired([])


def test_many_pairs_are_tested_by_random_sign_flips() -> None:
    differences = [0.4, 1.0, -0.2, 0.7, 0.3] * 3 + [0.1, -0.6]
    exact = (
        sum(
            abs(sum(s * d for s, d in zip(signs, differences, strict=True))) >= sum(differences) - 1e-9
            for signs in product((1, -1), repeat=17)
        )
        / 2**17
    )
    assert paired(differences).p == pytest.approx(exact, abs=3e-3)
    assert 0 < paired([1.0] * 40).p < 1e-4


def test_arms_are_compared_seed_by_seed_at_their_last_step() -> None:
    results = {
        "tense-plain": make_result({1: 80.0, 2: 81.0, 3: 50.0}, diverged=(3,)),
        "tense-mix": make_result({1: 83.0, 2: 83.5, 3: 84.0}),
        "bigram-shift-plain": make_result({1: 90.0, 2: 91.0}),
        "bigram-shift-mix": make_result({1: 80.0, 2: 81.0}),
    }
    comparison = compare(results)
    shift, tense = comparison.tasks
    assert (shift.task, tense.task) == ("bigram-shift", "tense")
    assert (tense.plain, tense.mix, tense.difference.count) == (80.5, 83.25, 2)
    assert tense.num_diverged == (1, 0)
    assert comparison.groups["semantic"].difference.mean == pytest.approx(2.75)
    assert comparison.groups["syntactic"].tasks == ("bigram-shift",)
    assert mean_gains(results, ["tense", "bigram-shift"]) == {1: -3.5, 2: -3.75}


def test_a_groups_means_are_those_of_the_seeds_that_it_compares() -> None:
    results = {
        "tense-plain": make_result({1: 80.0, 2: 90.0}),
        "tense-mix": make_result({1: 81.0, 2: 92.0}),
        "subject-number-plain": make_result({1: 70.0, 2: 75.0}),
        "subject-number-mix": make_result({1: 72.0, 2: 75.0}, diverged=(2,)),
    }
    group = compare(results).groups["semantic"]
    assert (group.plain, group.mix, group.difference.mean) == (75.0, 76.5, 1.5)


@pytest.mark.parametrize(
    ("gains", "words"),
    [
        ([4.6, 4.7, 4.8], "the mix is better. The paper's +4.65 on the same tasks lies inside"),
        (
            [0.1, -0.1, 0.2],
            "no difference is shown. The paper's +4.65 on the same tasks lies outside",
        ),
        ([-1.0, -1.1, -0.9], "the plain encoder is better"),
        ([1.0], "One seed has no interval"),
    ],
)
def test_the_verdict_says_what_the_interval_shows(gains: list[float], words: str) -> None:
    plain = make_result(dict.fromkeys(range(len(gains)), 80.0))
    mix = make_result({k: 80.0 + gain for k, gain in enumerate(gains)})
    verdict = compare({"tense-plain": plain, "tense-mix": mix}).verdict
    assert words in verdict


def test_the_papers_claim_is_its_mean_over_the_tasks_that_count() -> None:
    tasks = ["tense", "subject-number", "object-number", "odd-man-out", "coordination-inversion"]
    # As its Table 1 has it.
    assert claimed(tasks) == pytest.approx(2.67, abs=0.005)
    assert claimed([task for task in tasks if task != "odd-man-out"]) == pytest.approx(2.6525)


def test_a_task_whose_labels_are_doubted_has_a_row_but_counts_in_no_mean() -> None:
    results = {
        "tense-plain": make_result({1: 80.0, 2: 81.0}),
        "tense-mix": make_result({1: 81.0, 2: 82.0}),
        "odd-man-out-plain": make_result({1: 60.0, 2: 60.0}),
        "odd-man-out-mix": make_result({1: 90.0, 2: 91.0}),
    }
    known = {"odd-man-out": Known(largest_class=91.0, doubt="42% of its sentences have two labels")}
    comparison = compare(results, known)
    assert [pair.task for pair in comparison.tasks] == ["tense", "odd-man-out"]
    assert comparison.groups["semantic"].tasks == ("tense",)
    assert comparison.groups["semantic"].difference.mean == 1.0
    assert comparison.claim == pytest.approx(4.65)
    assert "Not counted: odd-man-out: 42% of its sentences have two labels." in comparison.verdict
    assert compare(results).groups["semantic"].difference.mean == pytest.approx(15.75)


def test_a_task_that_no_seed_learned_is_named() -> None:
    results = {
        "tense-plain": make_result({1: 50.0}, diverged=(1,)),
        "tense-mix": make_result({1: 80.0}),
    }
    comparison = compare(results)
    assert not comparison.tasks
    assert comparison.left_out == ("tense: no seed learned it in both arms",)


def test_without_a_semantic_task_nothing_is_said() -> None:
    plain = make_result({1: 80.0})
    alone = compare({"bigram-shift-plain": plain, "bigram-shift-mix": replace(plain)})
    assert "nothing can be said" in alone.verdict
