"""A command's imports cost no walk of the garbage collector, and a light answer imports nothing heavy."""

import gc
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from bermo.verbs.importing import importing
from tests.ship.folders import make_model, save


@pytest.fixture
def thawed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The collector as a new process has it."""
    monkeypatch.setattr("bermo.verbs.importing.HAS_FROZEN", Event())
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.mark.usefixtures("thawed")
def test_what_is_imported_is_passed_by_from_then_on() -> None:
    with importing():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 10_000
    with importing():  # a second time nothing is held back, lest garbage be kept for ever
        assert gc.isenabled()


@pytest.mark.usefixtures("thawed")
def test_an_import_that_fails_leaves_the_collector_at_work() -> None:
    with pytest.raises(ImportError), importing():
        raise ImportError
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--help"], 0), (["train", "--prune", "movement", "--density", "a"], 2)],
)
def test_help_and_a_typing_error_are_answered_without_torch(arguments: list[str], code: int) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "bermo", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code
    names = {line.rpartition("|")[2].strip().split(".")[0] for line in done.stderr.splitlines()}
    assert "bermo" in names
    assert not names & {"torch", "transformers", "numpy"}


NOT_TO_ANSWER = {
    "accelerate",
    "jinja2",
    "onnx",
    "pydot.core",
    "scipy",
    "sympy",
    "torch._decomp",
    "torch._dynamo",
    "torch._export",
    "torch._inductor",
    "torch._meta_registrations",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "torch.export",
    "torch.onnx",
    "triton",
}


NOT_TO_TRAIN = {
    "scipy",
    "sklearn",
    "sympy",
    "torch._dynamo",
    "torch._export",
    "torch._inductor",
    "torch.distributed.tensor._ops",
    "torch.export",
}


def imported(*arguments: object, **variables: str) -> set[str]:
    """Run a command that ends well, and return the modules that it imported."""
    command = [sys.executable, "-X", "importtime", "-m", "bermo", *map(str, arguments)]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}


@pytest.fixture
def films(tmp_path: Path) -> Path:
    rows = [f"{'good' if n % 2 else 'bad'} film {n},{'yes' if n % 2 else 'no'}" for n in range(24)]
    file = tmp_path / "films.csv"
    file.write_text("\n".join(["text,label", *rows]))
    return file


EACH_IN_TURN = """
import json, sys
for words in json.loads(sys.argv[1]):
    sys.argv = ["bermo", *words]
    from bermo.cli import main
    assert main() == 0, words
"""


def test_no_training_imports_a_compiler_or_sharded_tensors(films: Path) -> None:
    drawn = "--head random --pooling first"
    options = {
        "plain": "",
        "lora": f"--lora 2 {drawn}",
        "pruned": f"--prune movement --density 0.5 {drawn}",
    }
    train = f"train --train {films} --epochs 1 --out"
    commands = [f"{train} {films.with_name(name)} {more}".split() for name, more in options.items()]
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", EACH_IN_TURN, json.dumps(commands)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    names = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert {"torch", "accelerate"} <= names
    assert names & NOT_TO_TRAIN == set()
    for name in options:
        assert (films.with_name(name) / "model" / "model.safetensors").exists()


def test_one_of_several_processes_imports_what_joins_them(films: Path) -> None:
    alone = {
        "WORLD_SIZE": "1",
        "RANK": "0",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "0",
    }
    names = imported("train", "--train", films, "--epochs", "1", "--out", films.with_name("run"), **alone)
    assert "torch.distributed.tensor._ops" in names


def test_a_command_that_only_answers_imports_nothing_that_trains_or_compiles(tmp_path: Path) -> None:
    model = save(make_model(), tmp_path / "model")
    command = [sys.executable, "-X", "importtime", "-m", "bermo", "predict", str(model), "--text", "a film"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert json.loads(done.stdout)["label"] in ("bad", "good")
    names = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "torch" in names
    assert not names & NOT_TO_ANSWER


def test_a_metric_of_one_s_own_may_import_what_answers_need_not(tmp_path: Path) -> None:
    model, rows, metric = save(make_model(), tmp_path / "model"), tmp_path / "rows.csv", tmp_path / "mine.py"
    rows.write_text("text,label\na film,good\na play,bad\n")
    metric.write_text(
        "def cost(truth, answers):\n    from scipy.stats import hmean\n    return hmean([1, 1])\n"
    )
    assert "scipy.stats" in imported("evaluate", model, rows, "--metric", f"{metric}:cost")
