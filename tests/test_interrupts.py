"""Ctrl-C at any time ends the command with one line and exit code 75."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bermo.cli import INTERRUPTED
from bermo.interrupts import (
    SCHEDULERS,
    STOPPED,
    end_at_once,
    ending_at_once,
    follow_ctrl_c,
    ignored,
    raise_again,
    repeat_lost,
)

pytestmark = pytest.mark.skipif(os.name == "nt", reason="sends signals as Unix does")
IMPORTS = "import time:"


def interrupt_at(module: str, command: list[str], folder: Path) -> tuple[int, list[str]]:
    """Send SIGINT to the command as soon as it has imported a module; return its code and what it printed."""
    words = [sys.executable, "-X", "importtime", "-m", "bermo", *command]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, cwd=folder) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.rpartition("|")[2].strip() == module:
                process.send_signal(signal.SIGINT)
                break
        rest = [line for line in process.stderr if not line.startswith(IMPORTS)]
    return process.returncode, rest


@pytest.mark.parametrize(
    "module", ["bermo.files", "bermo.verbs.importing", "numpy._globals", "transformers.utils", "torch.nn"]
)
def test_ctrl_c_while_packages_are_imported_is_one_line(module: str, files: Path) -> None:
    before = sorted(files.rglob("*"))
    command = ["train", "--train", "my.csv", "--valid", "dev.csv", "--out", "run"]
    code, printed = interrupt_at(module, command, files)
    assert code == STOPPED
    assert len(printed) == 1
    assert printed[0].startswith("bermo: Stopped.")
    assert sorted(files.rglob("*")) == before


WATCH = """
import _signal, sys
class Watch:
    def find_spec(name, path=None, target=None):
        if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
            print(name)
sys.meta_path.insert(0, Watch)
sys.argv[0] = "bermo"
import bermo
"""


def test_the_command_takes_ctrl_c_before_it_imports_what_takes_time() -> None:
    ended = subprocess.run([sys.executable, "-c", WATCH], capture_output=True, text=True, check=True)
    assert {*ended.stdout.split()} <= {"bermo", "itertools", "bermo.interrupts"}


def test_importing_hands_ctrl_c_back() -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with ending_at_once():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        with ending_at_once():
            pass
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("number", SCHEDULERS)
def test_signals_of_schedulers_are_ctrl_c_even_where_that_is_ignored(number: int) -> None:
    before = signal.getsignal(number)
    follow_ctrl_c()
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        with ignored(), pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    finally:
        signal.signal(number, before)


def test_a_process_that_ignores_ctrl_c_goes_on_ignoring_it() -> None:
    with ignored():
        assert not end_at_once()
        raise_again()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


class Interrupted:
    """Ctrl-C comes while it is taken down."""

    def __del__(self) -> None:
        raise KeyboardInterrupt


def test_ctrl_c_in_a_finaliser_comes_again_and_is_not_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    repeat_lost()
    with pytest.raises(KeyboardInterrupt):
        _take_down_and_wait()
    assert capsys.readouterr().err == ""


def _take_down_and_wait() -> None:
    Interrupted()
    time.sleep(5)


def test_a_thread_leaves_signals_alone() -> None:
    faults: list[BaseException] = []

    def work() -> None:
        try:
            with ending_at_once(), ignored():
                pass
        except BaseException as error:
            faults.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not faults


@pytest.mark.parametrize("number", [signal.SIGINT, *SCHEDULERS])
def test_a_signal_at_the_very_end_has_no_traceback(number: signal.Signals) -> None:
    program = (
        "import atexit, os, sys; sys.argv = ['bermo'];"  # as the command does: no models are registered
        " from bermo.interrupts import die_quietly, raise_again;"
        f" atexit.register(os.kill, os.getpid(), {int(number)}); raise_again(); die_quietly()"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (-number, "")


LATE = """
import _signal, os, signal, sys
sys.argv = ["bermo", *{words}]
from bermo import cli
def late(*given, real={place}):
    if "{place}" != "_signal.signal" or given[1] == signal.SIG_DFL:
        {place} = real
        os.kill(os.getpid(), signal.SIGINT)
    return real(*given)
{place} = late
sys.exit(cli.main())
"""


@pytest.mark.parametrize(
    ("place", "words", "code"),
    [
        # While the signals are given back to the system, and just before: the work is done.
        ("_signal.signal", ["list"], 0),
        ("cli.die_quietly", ["list"], 0),
        # While a mistake is explained, which is then not told.
        ("cli._explain", ["show", "nothing"], STOPPED),
    ],
)
def test_ctrl_c_when_the_work_is_done_has_no_traceback(place: str, words: list[str], code: int) -> None:
    program = LATE.format(place=place, words=words)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "Traceback" not in ended.stderr
    assert ended.returncode == code
    assert ended.stderr == ("" if code == 0 else f"bermo: {INTERRUPTED}\n")
