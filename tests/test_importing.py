"""A command's imports cost no walk of the garbage collector, and a light answer imports nothing heavy."""

import ctypes
import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from bermo.verbs.importing import importing, wake_card


@pytest.fixture
def thawed() -> Iterator[None]:
    """The collector as a new process has it."""
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


class Driver:
    """Stands for a card's driver, which answers by numbers and knows only whom it is asked for."""

    def __init__(self, answer: int) -> None:
        self.answer, self.asked = answer, list[int]()

    def cuInit(self, flags: int) -> int:
        return self.answer

    def cuDevicePrimaryCtxRetain(self, context: object, number: int) -> int:
        self.asked.append(number)
        return 0


@pytest.mark.parametrize(("answer", "asked"), [(0, [1]), (100, [])])
def test_each_process_wakes_its_own_card_if_there_is_one(
    answer: int, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(answer)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    monkeypatch.setenv("LOCAL_RANK", "1")
    wake_card()
    assert driver.asked == asked


def test_without_a_driver_nothing_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    wake_card()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--help"], 0), (["train", "--prune", "movement", "--density", "a"], 2)],
)
def test_help_and_a_typing_error_are_answered_without_torch(
    arguments: list[str], code: int
) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "bermo", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code
    names = {line.rpartition("|")[2].strip().split(".")[0] for line in done.stderr.splitlines()}
    assert "bermo" in names
    assert not names & {"torch", "transformers", "numpy"}
