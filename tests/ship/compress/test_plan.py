"""What is tried for a goal: depth and density that fit the budget, taught by the dense model."""

from dataclasses import replace

import pytest

from bermo.methods.checks import check_methods
from bermo.ship.compress.plan import Arm, Plan, arm_spec, quick_arms, trained_arms
from bermo.ship.runtimes.run_data import with_files
from bermo.spec import DataSpec, RunSpec, replace_in


@pytest.mark.parametrize("share", [0.05, 0.12, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("saved", [0.0, 0.75])
def test_arms_cost_about_the_budget_and_never_more_layers_than_there_are(share: float, saved: float) -> None:
    plan = Plan(share=share, layers=12, saved=saved)
    arms = trained_arms(plan)
    assert len(arms) == len(set(arms)) >= 2
    for arm in arms:
        assert 1 <= arm.layers <= 12
        assert 0.05 <= arm.density <= 1
    thin = [arm.layers * arm.density for arm in arms if arm.density < 1]
    assert min(abs(cost - plan.budget) for cost in thin) < 0.1 * plan.budget + 0.1
    assert any(arm.density == 1 for arm in arms) or share == 0.9


def test_the_budget_counts_the_top_layer_that_is_read_in_part() -> None:
    assert Plan(share=0.25, layers=12, saved=0.0).budget == 3
    assert Plan(share=0.25, layers=12, saved=0.8).budget == pytest.approx(0.25 * 11.2 + 0.8)
    assert Plan(share=1.0, layers=12, saved=0.8).budget == 12


def test_without_training_all_layers_stay() -> None:
    arms = quick_arms(Plan(share=0.5, layers=6, saved=0.0))
    assert [arm.name for arm in arms] == ["6 layers at 0.38", "6 layers at 0.5", "6 layers at 0.65"]


def test_an_arm_is_taught_and_ranked_by_size() -> None:
    thin = arm_spec(Arm(layers=3, density=0.6), RunSpec(), "dense", hard=0.0, unlabelled="more.txt")
    check_methods(thin)
    assert thin.distill.unlabelled == "more.txt"
    assert thin.distill.student_layers == (1, 2, 3)
    assert (thin.distill.hard, thin.distill.soft, thin.distill.teacher) == (0.0, 1.0, "dense")
    assert (thin.prune.method, thin.prune.rank) == ("heads-and-neurons", "size")
    whole = arm_spec(Arm(layers=1), RunSpec(), "dense", hard=None)
    assert whole.prune.method == "none"
    assert whole.distill.hard == RunSpec().distill.hard
    assert Arm(layers=1).name == "1 layer"


def test_an_arm_of_a_run_with_chosen_values_has_those_of_its_teacher() -> None:
    chosen = {"head": "probe", "pooling": "mean", "keep_layers": 4, "keep_by": "last"}
    run = replace_in(RunSpec(), model=chosen, train={"contrast": 1.0, "lr": 5e-4}, method={"theseus": 2})
    arm = arm_spec(Arm(layers=3), run, "dense", hard=None)
    check_methods(arm)
    assert (arm.model.head, arm.model.pooling, arm.train.contrast, arm.train.lr) == (None, None, None, 5e-4)


def test_own_files_take_the_place_of_a_named_tasks_folder() -> None:
    run = DataSpec(task="sst2", folder="gone")
    own = with_files(run, "classification", None, "t.tsv", "v.tsv")
    assert (own.task, own.folder, own.train, own.valid) == (
        "own/classification",
        None,
        "t.tsv",
        "v.tsv",
    )
    assert with_files(run, "classification", "here", None, None) == replace(run, folder="here")
    assert with_files(run, "classification", None, None, None) == run
