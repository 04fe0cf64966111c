"""Every recipe says what it asks and costs, and its tiny form runs."""

import json
from pathlib import Path

import pytest

from bermo.cli import main
from bermo.data import sentences
from bermo.data.probing import FILES
from bermo.errors import BermoError
from bermo.recipes import RECIPES, find, probing, tiny
from bermo.runs.folder import fixed_part
from bermo.spec import RunSpec

# Its twenty arms are ten tasks twice, built in one loop: two of them go every way that there is.
# Arms that are alike in their tiny form, or stand in another recipe's, run once.
FEW_ARMS = {
    "paper/probing": ["tense-plain", "tense-mix"],
    "paper/convergence": ["mnli-3-epochs-plain", "squad-4-epochs-mix"],
    "paper/pruning-methods": [
        "qqp-magnitude-plain",
        "mnli-movement-plain",
        "qqp-soft-mix",
        "mnli-l0-mix",
        "squad-movement-mix",
    ],
    "paper/distillation": ["qqp-plain", "squad-mix"],
    "gpu/convergence": ["1-epochs-plain", "1-epochs-mix"],
    "gpu/stability": ["score-plain", "score-mix"],
    "gpu/pruning-methods": ["size-plain", "magnitude-mix", "size-mix", "soft-mix", "l0-mix"],
}


def arms_to_run() -> dict[str, list[str]]:
    """The arms of each recipe whose tiny form no recipe before it has: GLUE's are all alike there."""
    seen: list[RunSpec] = []
    found: dict[str, list[str]] = {}
    for name, recipe in RECIPES.items():
        specs = tiny(recipe(), Path()).arms
        for arm in FEW_ARMS.get(name, recipe().arms):
            if specs[arm] not in seen:
                seen.append(specs[arm])
                found.setdefault(name, []).append(arm)
    return found


@pytest.mark.usefixtures("shallow_box")
@pytest.mark.parametrize(("name", "arms"), arms_to_run().items())
def test_the_tiny_form_of_every_recipe_runs(
    name: str, arms: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", name, "--tiny", "--arms", ",".join(arms), "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    for arm in arms:
        assert (tmp_path / arm / "result.json").exists()
        assert arm in printed
        if find(name)().arms[arm].distill.teacher is not None:
            spec = json.loads((tmp_path / arm / "spec.json").read_text())["spec"]
            assert (Path(spec["distill"]["teacher"]) / "model" / "config.json").exists()


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
        "subject-number-untrained",
        "object-number-untrained",
    ]


@pytest.mark.parametrize("name", [n for n in RECIPES if not n.startswith(("paper/", "gpu/")) and n != "demo"])
def test_arms_of_the_core_differ_only_in_the_mix(name: str) -> None:
    parts = [fixed_part(spec) for spec in RECIPES[name]().arms.values()]
    for part in parts:
        del part["model"]["mix"]
    assert all(part == parts[0] for part in parts)


@pytest.mark.parametrize("name", [n for n in RECIPES if n.startswith("gpu/")])
def test_arms_of_one_name_differ_only_in_the_mix(name: str) -> None:
    arms = RECIPES[name]().arms
    for arm, spec in arms.items():
        assert spec.train.together == (1 if spec.method.mix_path else len(spec.seeds))
        partner = arm.replace("plain", "mix")
        if partner != arm and partner in arms:
            parts = [fixed_part(one) for one in (spec, arms[partner])]
            for part in parts:
                del part["model"]["mix"]
            assert parts[0] == parts[1]


def test_the_papers_methods_carry_the_appendix() -> None:
    arms = find("paper/pruning-methods")().arms
    assert len(arms) == 3 * 4 * 2
    # Tables 9 and 10: λ of L0 and of soft movement, the scores' rate, the warm-ups.
    l0, soft = arms["mnli-l0-plain"].prune, arms["squad-soft-mix"].prune
    assert (l0.penalty, arms["mnli-l0-mix"].prune.penalty, l0.lr) == (50, 45, 0.1)
    assert (l0.warmup_steps, l0.initial_warmup, l0.final_warmup) == (12000, 1, 1)
    assert (soft.penalty, soft.lr, soft.threshold) == (500, 0.01, 0.1)
    assert (soft.warmup_steps, soft.initial_warmup, soft.final_warmup) == (5400, 1, 2)
    rates = {name: spec.train.lr for name, spec in arms.items() if name.startswith("qqp")}
    assert rates["qqp-movement-mix"] == rates["qqp-soft-plain"] == 3e-6
    assert rates["qqp-magnitude-mix"] == rates["qqp-l0-plain"] == 3e-5


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("paper/standalone", ("91.74", "92.43", "76.95", "77.43")),
        ("paper/stability", ("79.85", "82.22", "85.88", "87.61")),
        ("paper/pruning-methods", ("76.32 / 76.67", "86.28 / 81.64", "74.99 and 74.28", "85.78 / 80.67")),
        ("paper/convergence", ("1.67", "1.15")),
        ("paper/distillation", ("76.63 / 77.46", "81.79 / 86.58", "76.69 and 76.85")),
    ],
)
def test_the_papers_recipes_carry_its_numbers(name: str, numbers: tuple[str, ...]) -> None:
    text = " ".join(str(RECIPES[name].__doc__).split())
    assert all(number in text for number in numbers)


@pytest.mark.parametrize("name", [n for n in RECIPES if n.startswith("paper/")])
def test_the_papers_schedules_have_room(name: str) -> None:
    per_epoch = {"sst2": 2105, "mnli": 12272, "qqp": 11370, "squad": 5533}
    for spec in RECIPES[name]().arms.values():
        if spec.prune.warmup_steps is not None:
            warmups = spec.prune.initial_warmup + spec.prune.final_warmup
            assert spec.train.epochs * per_epoch[spec.data.task] > warmups * spec.prune.warmup_steps


def test_an_unknown_recipe_gets_the_nearest() -> None:
    with pytest.raises(BermoError, match=r'no recipe "sts2"\. Did you mean "sst2"'):
        find("sts2")


def test_earlier_names_of_recipes_still_work_and_name_those_of_today(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert find("here/stability") is find("gpu/stability")
    assert main(["show", "here/stability"]) == 0
    printed = capsys.readouterr()
    assert printed.err == 'bermo: The recipe "here/stability" is called "gpu/stability" now.\n'
    assert "Source: Table 3" in printed.out
    assert main(["show", "gpu/stability"]) == 0
    assert capsys.readouterr().err == ""
    with pytest.raises(BermoError, match=r'no recipe "here/stabilty"\. Did you mean "gpu/stability"'):
        find("here/stabilty")


def test_the_papers_probing_tasks_are_those_that_there_is_data_for() -> None:
    assert tuple(probing.PAPER) == probing.TASKS == tuple(sentences.TASKS) == tuple(FILES)
