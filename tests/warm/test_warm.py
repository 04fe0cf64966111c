"""Forked processes are to whoever starts them what new ones are."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.warm.start import CAN_FORK

pytestmark = [
    pytest.mark.skipif(not CAN_FORK, reason="processes are started anew here"),
    pytest.mark.usefixtures("warm_python"),
]
WAIT = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"


def ended(*words: str, **options: object) -> tuple[int, str]:
    done = subprocess.run([sys.executable, *words], stdout=subprocess.PIPE, text=True, check=False, **options)  # type: ignore[call-overload]
    return done.returncode, done.stdout.strip()


def test_imports_are_done_and_folder_environment_and_words_are_those_of_the_caller(tmp_path: Path) -> None:
    code = "import os, sys; print('torch' in sys.modules, os.getcwd(), os.environ['OWN'], sys.argv[1:])"
    told = f"True {tmp_path} value ['a', 'b']"
    own = os.environ | {"OWN": "value"}
    assert ended("-c", code, "a", "b", cwd=tmp_path, env=own) == (0, told)
    (tmp_path / "script.py").write_text(code)
    assert ended("script.py", "a", "b", cwd=tmp_path, env=own) == (0, told)


def test_code_comes_from_standard_input_too_and_an_isolated_interpreter_is_new() -> None:
    code = "import sys; print('torch' in sys.modules)"
    assert ended("-", input=code) == (0, "True")
    assert ended("-I", "-", input=code) == (0, "False")


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("import sys; sys.exit(75)", 75),
        ("1 / 0", 1),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
        ("import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', 'exit(3)']))", 3),
    ],
)
def test_the_end_is_that_of_the_forked_process(code: str, wanted: int) -> None:
    assert ended("-c", code, stderr=subprocess.DEVNULL)[0] == wanted


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_reaches_the_forked_process(number: int) -> None:
    with subprocess.Popen([sys.executable, "-c", WAIT], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        forked = int(process.stdout.readline())
        process.send_signal(number)
        assert process.wait() == -number
    end = time.monotonic() + 60
    while Path(f"/proc/{forked}").exists():
        assert time.monotonic() < end
        time.sleep(0.01)
