"""Real engines: a run whose worker and driver are killed in the middle goes on and ends in the same bits."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from bermo.cli import main
from bermo.runs.holder import Holder, living_holder

MEASURED = {"seconds", "rows_per_second", "peak_memory_mib"}
PATIENCE = 120.0
ENGINES = {
    "local": "--on local --workers 2",
    # Where there is no Slurm, submitit's local executor takes its place.
    "slurm": "--on slurm --partition any --hours 1 --gpus-per-run 0",
    "ray": "--on ray",
}
PACKAGES = {"slurm": "submitit", "ray": "ray"}
pytestmark = pytest.mark.skipif(os.name == "nt", reason="sends signals as Unix does")


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def recipe(small_encoder: Path) -> list[str]:
    """A run of 48 short steps, each of which is saved."""
    changes = f"model.backbone={small_encoder} train.epochs=16 train.checkpoint_minutes=0 train.device=cpu"
    return ["run", "sst2", "--tiny", "--arms", "mix", *changes.split(), "data.max_length=16"]


def numbers(out: Path) -> Any:
    """What a run computed, without what was measured by a clock."""
    seeds = json.loads((out / "mix" / "result.json").read_text())["seeds"]
    return [{name: value for name, value in seed.items() if name not in MEASURED} for seed in seeds]


def wait_for(what: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.02)
    raise AssertionError("nothing came")


def holder_in_the_middle(out: Path, but: int = 0) -> Holder | None:
    """Return who trains, another than `but`, once something is saved."""
    holder = living_holder(out / "mix")
    is_begun = any((out / "mix").glob("seed-*/checkpoints/*"))
    return holder if is_begun and holder is not None and holder.process != but else None


@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize("engine", ENGINES)
def test_a_killed_worker_and_a_killed_driver_change_no_bit(
    engine: str, recipe: list[str], tmp_path: Path
) -> None:
    # Ray is not installed in CI: 79 MB, and a start of its own for each cluster.
    if engine in PACKAGES and find_spec(PACKAGES[engine]) is None:
        pytest.skip(f"needs {PACKAGES[engine]}")
    out, words = tmp_path / "out", [sys.executable, "-m", "bermo", *recipe, *ENGINES[engine].split()]
    words += ["--out", str(out)]
    with (tmp_path / "driver.log").open("w") as log:
        driver = subprocess.Popen(words, stdout=log, stderr=log)
        first = wait_for(lambda: holder_in_the_middle(out))
        os.kill(first.process, signal.SIGKILL)
        wait_for(lambda: holder_in_the_middle(out, first.process))
        driver.kill()
        driver.wait()
        again = subprocess.run(words, stdout=subprocess.PIPE, stderr=log, text=True, check=False)
    assert again.returncode == 0, (tmp_path / "driver.log").read_text()
    assert "Results are in" in again.stdout
    assert main([*recipe, "--out", str(tmp_path / "hand")]) == 0
    assert numbers(out) == numbers(tmp_path / "hand")
