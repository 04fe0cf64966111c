"""The grid's jobs are commands that bermo reads; their runs become rows, one a seed."""

import json
from pathlib import Path

import pytest

from benchmarks.grid import Job, beside, jobs, left, rows
from benchmarks.grid_plan import METHODS, TASKS
from bermo.fields import leaves
from bermo.spec import RunSpec
from scripts.tables.grid import STARTS, WORDS

SEEDS = [
    {"seed": 9, "score": 88.1, "last_score": 88.0, "diverged": None, "density": 0.1},
    {"seed": 25, "score": 51.0, "last_score": 50.9, "diverged": "every prediction is 1", "density": 0.1},
]
SEEDS = [seed | {"undertrained": None, "device": "a card"} for seed in SEEDS]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    for name in ("gte-sst2k-size-plain.9-25", "mpnet-mrpc-dense.9-25", "mpnet-sst2-teacher.9"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text(json.dumps({"seeds": SEEDS}), encoding="utf-8")
    return tmp_path


def test_a_run_becomes_a_row_for_each_seed_and_a_teacher_none(out: Path) -> None:
    found = rows(out)
    assert [(row["seed"], row["last"], row["dead"]) for row in found[:2]] == [
        (9, 88.0, False),
        (25, 50.9, True),
    ]
    first, last = found[0], found[-1]
    assert (first["encoder"], first["task"]) == ("gte-small", "SST-2, 20,000 rows")
    assert (first["method"], first["mix"], first["dense"]) == ("size", False, False)
    assert (last["encoder"], last["task"], last["method"], last["dense"]) == (
        "mpnet-base",
        "mrpc",
        "dense",
        True,
    )


def test_a_seed_is_dead_only_by_one_answer_to_everything(out: Path) -> None:
    seeds = [SEEDS[0] | {"diverged": "accuracy 69.10 is about that of one answer for everything (69.13)"}]
    seeds.append(SEEDS[0] | {"seed": 39, "undertrained": "every prediction is 1 after 8 steps"})
    path = out / "mpnet-mrpc-dense.9-25" / "result.json"
    path.write_text(json.dumps({"seeds": seeds}), encoding="utf-8")
    assert [row["dead"] for row in rows(out)] == [False, True, False, True]


def test_a_row_names_the_device_of_its_training(out: Path) -> None:
    assert {row["device"] for row in rows(out)} == {"a card"}


def test_what_has_a_row_is_not_run_again_and_a_teacher_only_for_whom_it_teaches(out: Path) -> None:
    wanted = [
        Job(encoder="gte", task="sst2k", method="size-plain", seeds=(9, 25, 39)),
        Job(encoder="mpnet", task="mrpc", method="dense", seeds=(9, 25)),
        Job(encoder="gte", task="sst2k", method="teacher", seeds=(9,)),
        Job(encoder="gte", task="sst2k", method="taught", seeds=(9,)),
        Job(encoder="mpnet", task="sst2k", method="teacher", seeds=(9,)),
    ]
    known = rows(out)
    assert [job.name for job in left(wanted, known)] == [
        "gte-sst2k-size-plain.39",
        "gte-sst2k-teacher.9",
        "gte-sst2k-taught.9",
    ]
    assert not left(wanted[2:], [known[0] | {"method": "taught", "mix": True}])


def test_new_rows_replace_earlier_ones_of_the_same_training(out: Path) -> None:
    found = rows(out)
    earlier = [found[0] | {"last": 1.0}, found[0] | {"seed": 39}]
    both = beside(found, earlier)
    assert [row["last"] for row in both if row["seed"] == 9 and row["method"] == "size"] == [88.0]
    assert [row["seed"] for row in both if row["method"] == "size"] == [9, 25, 39]


def test_no_job_is_planned_twice() -> None:
    seeds = [(job.encoder, job.task, job.method, seed) for job in jobs() for seed in job.seeds]
    assert len(seeds) == len(set(seeds))


def test_every_arm_is_a_command_that_bermo_reads() -> None:
    known = {f"--{leaf.flag}" for leaf in leaves(RunSpec)}
    for words in (*TASKS.values(), *METHODS.values()):
        assert {word for word in words.split() if word.startswith("--")} <= known
    for job in jobs():
        assert {word for word in job.words(Path("m"), Path("d"), Path("o")) if word[:2] == "--"} <= known


def test_every_method_of_the_plan_has_words_in_the_tables() -> None:
    assert set(METHODS) <= set(WORDS)
    planned = {job.method.removesuffix("-plain") for job in jobs()}
    assert set(STARTS) <= planned


def test_a_taught_arm_reads_the_teacher_of_its_own_task() -> None:
    (first, *_) = [job for job in jobs() if job.method == "taught"]
    words = first.words(Path("m"), Path("d"), Path("o"))
    assert words[words.index("--teacher") + 1] == f"o/{first.encoder}-{first.task}-teacher.9"
