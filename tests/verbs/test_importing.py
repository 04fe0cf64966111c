"""A command's imports cost no walk of the garbage collector, and a light answer imports nothing heavy."""

import gc
import json
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
    "onnx",
    "scipy",
    "sympy",
    "torch._dynamo",
    "torch._inductor",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "torch.onnx",
    "triton",
}


def test_a_command_that_only_answers_imports_nothing_that_trains_or_compiles(tmp_path: Path) -> None:
    model = save(make_model(), tmp_path / "model")
    command = [sys.executable, "-X", "importtime", "-m", "bermo", "predict", str(model), "--text", "a film"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert json.loads(done.stdout)["label"] in ("bad", "good")
    names = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "torch" in names
    assert not names & NOT_TO_ANSWER
