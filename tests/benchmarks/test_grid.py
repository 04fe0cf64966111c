"""The grid's runs become rows, one a seed, with the names that the table shows."""

import json
from pathlib import Path

from benchmarks.grid import METHODS, TASKS, rows
from bermo.fields import leaves
from bermo.spec import RunSpec


def test_a_run_becomes_a_row_for_each_seed(tmp_path: Path) -> None:
    seeds = [
        {"seed": 9, "score": 88.1, "last_score": 88.0, "diverged": None, "density": 0.1},
        {"seed": 25, "score": 51.0, "last_score": 50.9, "diverged": "every prediction is 1", "density": 0.1},
    ]
    for name in ("gte-sst2k-size-plain", "mpnet-mrpc-dense"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text(json.dumps({"seeds": seeds}), encoding="utf-8")
    found = rows(tmp_path)
    assert [(row["seed"], row["last"], row["dead"]) for row in found[:2]] == [
        (9, 88.0, False),
        (25, 50.9, True),
    ]
    first, last = found[0], found[-1]
    assert (first["encoder"], first["task"]) == ("gte-small", "SST-2, 20,000 rows")
    assert (first["method"], first["mix"], first["dense"]) == ("size", False, False)
    assert (last["encoder"], last["method"], last["dense"]) == ("mpnet-base", "dense", True)


def test_every_arm_is_a_command_that_bermo_reads() -> None:
    known = {f"--{leaf.flag}" for leaf in leaves(RunSpec)}
    for words in (*TASKS.values(), *METHODS.values()):
        assert {word for word in words.split() if word.startswith("--")} <= known
