"""Every recipe says what it asks and costs, and its tiny form runs."""

from pathlib import Path

import pytest

from bermo.cli import main
from bermo.errors import BermoError
from bermo.recipes import RECIPES, find
from bermo.runs import fixed_part

# Its twenty arms are ten tasks twice, built in one loop: two of them go every way that there is.
# Arms that are alike in their tiny form, or stand in another recipe's, run once.
FEW_ARMS = {
    "paper/probing": ["tense-plain", "tense-mix"],
    "paper/convergence": ["3-epochs-plain", "3-epochs-mix"],
    "here/convergence": ["1-epochs-plain", "1-epochs-mix"],
    "here/stability": ["score-plain", "score-mix"],
    "here/pruning-methods": ["size-plain", "magnitude-mix", "size-mix", "soft-mix", "l0-mix"],
}


@pytest.mark.parametrize("name", RECIPES)
def test_the_tiny_form_of_every_recipe_runs(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = FEW_ARMS.get(name, list(RECIPES[name]().arms))
    assert main(["run", name, "--tiny", "--arms", ",".join(arms), "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    for arm in arms:
        assert (tmp_path / arm / "result.json").exists()
        assert arm in printed


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_says_what_it_asks_and_what_it_costs_or_needs(name: str) -> None:
    text = str(RECIPES[name].__doc__)
    assert "Cost:" in text or "Needs:" in text or "Source:" in text


def test_arms_of_the_demo_differ_in_task_mix_and_training_alone() -> None:
    arms = find("demo")().arms
    assert len(arms) == 6
    parts = [fixed_part(spec) for spec in arms.values()]
    for part in parts:
        del part["model"]["mix"], part["model"]["untrained"], part["data"]["task"]
    assert all(part == parts[0] for part in parts)
    assert [name for name, spec in arms.items() if spec.model.untrained] == [
        "subject-number-untrained", "object-number-untrained",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name", [n for n in RECIPES if not n.startswith(("paper/", "here/")) and n != "demo"]
)
def test_arms_of_the_core_differ_only_in_the_mix(name: str) -> None:
    parts = [fixed_part(spec) for spec in RECIPES[name]().arms.values()]
    for part in parts:
        del part["model"]["mix"]
    assert all(part == parts[0] for part in parts)


@pytest.mark.parametrize("name", [n for n in RECIPES if n.startswith("here/")])
def test_arms_of_one_name_differ_only_in_the_mix(name: str) -> None:
    arms = RECIPES[name]().arms
    for arm, spec in arms.items():
        assert spec.train.together == len(spec.seeds)
        partner = arm.replace("plain", "mix")
        if partner != arm and partner in arms:
            parts = [fixed_part(one) for one in (spec, arms[partner])]
            for part in parts:
                del part["model"]["mix"]
            assert parts[0] == parts[1]


def test_an_unknown_recipe_gets_the_nearest() -> None:
    with pytest.raises(BermoError, match=r'no recipe "sts2"\. Did you mean "sst2"'):
        find("sts2")
