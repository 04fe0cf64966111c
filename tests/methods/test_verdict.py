"""A training that guesses has diverged or is undertrained; each gets advice that is not already set."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from bermo.data.scoring import TaskScores
from bermo.methods.prepare import Prepared, prepare
from bermo.methods.verdict import advice, handicap, judge
from bermo.progress import Quiet
from bermo.spec import DataSpec, PruneSpec, RunSpec, TrainSpec, replace_in
from bermo.training.job import Fit

TINY = RunSpec(
    data=DataSpec(task="box/tense", limit=48, max_length=64),
    train=TrainSpec(epochs=2, batch_size=16, lr=5e-4, device="cpu"),
)
SCORES = TaskScores("accuracy", {"accuracy": 50.0}, Counter({"past": 20, "present": 28}))
ONE_CLASS = replace(SCORES, predicted=Counter({"past": 48}))
ENDED = Fit(
    steps=6,
    best_step=6,
    best={},
    last={},
    start={},
    highest=50.0,
    last_loss=0.69,
    is_finite=True,
    seconds=1,
    num_rows=96,
)


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return prepare(TINY, Quiet())


def with_train(prepared: Prepared, **values: float) -> Prepared:
    return replace(prepared, spec=replace_in(prepared.spec, train=values))


def test_guessing_after_a_few_steps_is_undertrained(prepared: Prepared) -> None:
    verdict = judge(with_train(prepared, contrast=0.0), SCORES, ENDED)
    assert verdict.kind == "undertrained"
    assert verdict.reason == "the training loss 0.690 is still that of guessing (0.693) after 6 steps"
    assert judge(prepared, ONE_CLASS, ENDED).reason == 'every prediction is "past" after 6 steps'


def test_answers_that_know_nothing_have_a_handicap(prepared: Prepared) -> None:
    error = 100 * (0.25 / len(prepared.valid)) ** 0.5
    chance, some = (replace(SCORES, values={"accuracy": 72.0, "matthews": m}) for m in (-4.4, 11.8))
    assert handicap(prepared, ONE_CLASS) == handicap(prepared, chance) == pytest.approx(error)
    assert handicap(prepared, SCORES) == handicap(prepared, some) == handicap(prepared, None) == 0


def test_beside_a_contrast_the_answers_say_that_it_guesses(prepared: Prepared) -> None:
    reason = judge(with_train(prepared, contrast=1.0), SCORES, replace(ENDED, last_loss=2.1)).reason
    assert reason == "accuracy 50.00 is about that of one answer for everything (50.00) after 6 steps"


def test_guessing_after_having_been_better_is_a_collapse(prepared: Prepared) -> None:
    for scores in (SCORES, ONE_CLASS):
        verdict = judge(prepared, scores, replace(ENDED, highest=72.0))
        assert verdict.kind == "diverged"
        assert str(verdict.reason).endswith("; accuracy was 72.00 before")


def test_a_fall_that_few_rows_explain_is_none(prepared: Prepared) -> None:
    assert len(prepared.valid) == 48  # one of them is 2 points
    assert judge(prepared, ONE_CLASS, replace(ENDED, highest=62.0)).kind == "undertrained"
    assert judge(prepared, ONE_CLASS, replace(ENDED, highest=65.0)).kind == "diverged"


def test_guessing_after_many_steps_or_at_a_huge_rate_is_a_collapse(prepared: Prepared) -> None:
    many = replace(ENDED, steps=5000)
    assert judge(prepared, ONE_CLASS, many).kind == "diverged"
    assert judge(with_train(prepared, lr=1.0), ONE_CLASS, ENDED).kind == "diverged"
    assert judge(with_train(prepared, lr=1e-6), ONE_CLASS, many).kind == "undertrained"


def test_a_pruned_model_that_guesses_is_a_collapse_however_short_its_training(prepared: Prepared) -> None:
    pruned = replace(prepared.spec, prune=PruneSpec(method="movement", density=0.1, rank="score"))
    assert judge(replace(prepared, spec=pruned), ONE_CLASS, ENDED).kind == "diverged"


def test_a_loss_that_fell_and_good_answers_are_fine_and_no_number_is_a_collapse(prepared: Prepared) -> None:
    assert judge(prepared, SCORES, replace(ENDED, last_loss=0.3)).kind == "fine"
    good = replace(SCORES, values={"accuracy": 72.0})
    assert judge(prepared, good, ENDED).kind == "fine", "good answers are no guessing, whatever the loss"
    assert "not a number" in str(judge(prepared, SCORES, replace(ENDED, is_finite=False)).reason)


def test_numbers_that_do_not_follow_the_right_ones_are_not_fine(tmp_path: Path) -> None:
    rows = [f"a dog runs\t{k / 7:.2f}" for k in range(40)]
    (tmp_path / "numbers.tsv").write_text("text\tscore\n" + "\n".join(rows) + "\n")
    file = str(tmp_path / "numbers.tsv")
    prepared = prepare(replace(TINY, data=DataSpec(train=file, valid=file, max_length=32)), Quiet())
    for pearson, kind in ((-31.0, "undertrained"), (10.0, "undertrained"), (60.0, "fine")):
        scores = TaskScores("mean", {"pearson": pearson, "spearman": pearson, "mean": pearson})
        verdict = judge(prepared, scores, replace(ENDED, highest=pearson, last_loss=2.0))
        assert verdict.kind == kind
        assert verdict.reason is None or f"(correlation {pearson / 100:.2f}" in verdict.reason
        assert ("the other way round" in str(verdict.reason)) == (pearson < -30)


def test_advice_says_nothing_that_is_already_set_and_never_the_opposite(prepared: Prepared) -> None:
    spec, facts = prepared.spec, prepared.facts
    assert advice(spec, facts, "undertrained") == "Try more --epochs than 2."
    slow = replace_in(spec, model={"head": "random"}, train={"lr": 1e-5})
    assert advice(slow, facts, "undertrained") == (
        "Try more --epochs than 2, --head probe or a larger --lr (0.0002 is usual for this encoder)."
    )
    assert advice(spec, facts, "diverged") == (
        "Try a smaller --lr than 0.0005, a longer --warmup than 0.1 or another seed."
    )
    pruned = replace(spec, prune=PruneSpec(method="movement", density=0.1, rank="score"))
    said = advice(pruned, facts, "diverged")
    assert "--rank sensitivity" in said
    assert "more --epochs" in said
    assert "--mix" not in said
    plain = replace_in(pruned, model={"mix": replace(spec.model.mix, kind="none")}, prune={"rank": "size"})
    assert "--mix across" in advice(plain, facts, "diverged")
    assert "--rank" not in advice(plain, facts, "diverged")
    assert "--lr" not in said
    hot = replace_in(pruned, train={"lr": 1e9})
    assert "a smaller --lr than 1e+09, more --epochs" in advice(hot, facts, "diverged")
