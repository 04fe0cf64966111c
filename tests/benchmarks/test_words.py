"""Probes of words, gathered from a command's folder with its times."""

import os
from pathlib import Path

import pytest

from benchmarks.words import TASKS, gather
from bermo.files import write_sealed

TIMES = (
    "reading layers\n\tUser time (seconds): 1000.50\n\tSystem time (seconds): 20.25\n"
    "\tElapsed (wall clock) time (h:mm:ss or m:ss): 1:02:03\n"
)


def test_models_stand_in_the_order_they_were_probed_and_sentences_stay_out(tmp_path: Path) -> None:
    for second, model in enumerate(("late", "early")):
        (tmp_path / model).mkdir()
        for task in TASKS:
            path = tmp_path / model / f"{task}.json"
            write_sealed(path, {"task": task, "accuracy": [90.12345], "examples": [["a", "word"]]})
            os.utime(path, (100 - second, 100 - second))
    found = gather(tmp_path, TIMES)
    assert list(found["models"]) == ["early", "late"]
    assert found["models"]["late"]["tree"] == {"task": "tree", "accuracy": [90.123]}
    assert (found["cpu_seconds"], found["wall_seconds"]) == (1020.8, 3723.0)


def test_times_that_are_not_those_of_a_command_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="/usr/bin/time -v"):
        gather(tmp_path, "")
