"""A signal that comes in a long step is answered at once, and a second Ctrl-C ends the command."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from bermo.interrupts import _PROCESS, INTERRUPTED, STOPPED
from bermo.progress import Quiet
from bermo.training import signals
from bermo.training.job import Stopped
from bermo.training.signals import Watch, catch_signals
from tests.toy import SETTINGS, StopAt, run, toy_job

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends signals as Unix does")


class Told(Quiet):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self.is_closed = False

    def tell(self, sentence: str) -> None:
        self.sentences.append(sentence)

    def close(self) -> None:
        self.is_closed = True


class SlowStop(StopAt):
    """A hook that sends a signal, and computes for a while after it."""

    def plan(self, step: int) -> None:
        super().plan(step)
        if step == self.stop_step:
            time.sleep(0.3)


@pytest.mark.parametrize(("step", "then"), [(2, "begins anew"), (9, "goes on from step 7")])
def test_a_step_that_takes_long_says_what_ctrl_c_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, then: str
) -> None:
    monkeypatch.setattr(signals, "PATIENCE", 0.05)
    told = Told()
    with pytest.raises(Stopped):
        run(toy_job(tmp_path, SETTINGS, hooks=(SlowStop(step),), display=told))
    assert told.sentences[-1] == (
        "Stopping when this step is done and the state is saved. Ctrl-C again ends at once; the same command"
        f" then {then}."
    )


def test_a_signal_in_a_step_is_obeyed_at_its_end(tmp_path: Path) -> None:
    with pytest.raises(Stopped, match="Stopped at step 3 of"):  # the hook counts from 0
        run(toy_job(tmp_path, SETTINGS, hooks=(StopAt(2),)))


def test_a_signal_that_is_obeyed_soon_has_no_word_and_leaves_no_thread(tmp_path: Path) -> None:
    told, before = Told(), threading.active_count()
    with pytest.raises(Stopped):
        run(toy_job(tmp_path, SETTINGS, hooks=(StopAt(2),), display=told))
    assert not [sentence for sentence in told.sentences if "Stopping" in sentence]
    assert threading.active_count() == before
    assert signal.set_wakeup_fd(-1) == -1


@pytest.mark.parametrize("is_ours", [True, False])
def test_two_that_come_while_python_cannot_answer_end_a_command_and_no_other_program(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], is_ours: bool
) -> None:
    monkeypatch.setattr(signals, "PATIENCE", 0.05)
    monkeypatch.setitem(_PROCESS, "is_ours", is_ours)
    codes: list[int] = []
    monkeypatch.setattr("os._exit", codes.append)
    told = Told()
    watch = Watch(told, lambda: "a word")
    watch.start()
    watch.writer.send(bytes([signal.SIGINT, signal.SIGCHLD, signal.SIGINT]))  # as the system's handler does
    time.sleep(0.5)
    watch.stop()
    assert (codes, told.is_closed, told.sentences) == ([STOPPED] * is_ours, is_ours, [])
    assert capfd.readouterr().err == f"bermo: {INTERRUPTED}\n" * is_ours


def test_a_second_ctrl_c_takes_the_usual_way() -> None:
    with catch_signals(Quiet(), str) as caught:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert caught == [signal.SIGINT]
        caught.clear()  # else it comes once more at the end
