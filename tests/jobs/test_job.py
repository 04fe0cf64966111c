"""Jobs: a spec becomes its command and back, and a folder says how far its run is."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bermo.cli import build_parser, main
from bermo.jobs.job import Job, forget_failure, job_state, jobs_of, read_failure, write_failure
from bermo.methods.finetune import finetune
from bermo.recipes import RECIPES, tiny
from bermo.runs.command import train_command
from bermo.runs.folder import locked
from bermo.spec import Experiment, RunSpec, replace_in
from bermo.verbs import VERBS
from bermo.verbs.options import read_options
from tests.specs import TINY

QUICK = replace_in(replace(TINY, prune=RunSpec().prune), train={"epochs": 1.0}, data={"limit": 16})


def read_back(words: tuple[str, ...]) -> tuple[RunSpec, Path]:
    options = read_options(VERBS["train"].options, build_parser()[0].parse_args(words))
    return options.spec, options.out


@pytest.mark.parametrize("name", RECIPES)
def test_the_command_of_every_arm_is_read_back_as_its_spec(name: str, tmp_path: Path) -> None:
    whole = RECIPES[name]()
    for experiment in (whole, tiny(whole, tmp_path)):
        for arm, spec in experiment.arms.items():
            assert read_back(train_command(spec, tmp_path / arm)) == (spec, tmp_path / arm)


def test_unusual_values_are_read_back(tmp_path: Path) -> None:
    spec = replace(
        replace_in(
            QUICK, model={"mix": replace(QUICK.model.mix, layers=(-1, 0))}, train={"group_lengths": False}
        ),
        seeds=(7,),
    )
    assert read_back(train_command(spec, tmp_path / "a b")) == (spec, tmp_path / "a b")


def test_an_arm_waits_for_the_arm_that_is_its_teacher(tmp_path: Path) -> None:
    taught = replace_in(QUICK, distill={"teacher": str(tmp_path / "dense")})
    jobs = jobs_of(Experiment(arms={"dense": QUICK, "taught": taught}), tmp_path)
    assert [job.needs for job in jobs] == [(), ("dense",)]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return jobs_of(Experiment(arms={"one": QUICK}), tmp_path)[0]


def test_a_folder_says_how_far_its_run_is(job: Job) -> None:
    assert job_state(job) == "to do"
    with locked(job.folder):
        assert job_state(job) == "running"
    finetune(QUICK, job.folder)
    assert job_state(job) == "done"
    assert job_state(replace(job, seeds=(1, 2))) == "stopped"
    result = job.folder / "result.json"
    result.write_text(result.read_text().replace("}", "", 1))
    assert job_state(job) == "stopped"
    values = {"seeds": [{"seed": 1, "diverged": "its loss is not a number"}]}
    result.write_text(json.dumps(values))
    assert job_state(job) == "diverged"


def test_a_failure_is_kept_with_the_last_lines_until_it_is_forgotten(job: Job) -> None:
    job.log.parent.mkdir()
    job.log.write_text("\n".join(map(str, range(9))) + "\n\n")
    write_failure(job, 1)
    assert job_state(job) == "failed"
    failure = read_failure(job)
    assert failure is not None
    assert (failure.code, failure.last_lines) == (1, ("4", "5", "6", "7", "8"))
    forget_failure(job)
    assert (job_state(job), read_failure(job)) == ("to do", None)


def test_the_verb_prints_a_line_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["jobs", "sst2", "--tiny", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(RECIPES["sst2"]().arms)
    assert all(line.startswith("to do ") and " bermo train --" in line for line in lines)
    assert main([*words, "--json"]) == 0
    facts = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {fact["state"] for fact in facts} == {"to do"}
    assert facts[0]["folder"] == str(tmp_path / "out" / facts[0]["name"])
    assert not (tmp_path / "out").exists()
