"""A process that imports torch and transformers once and forks a child for each command.

A child starts in a moment, with all that was imported, and ends with its memory and its GPU's. The nursery
reads one JSON object a line, {"start": N, "words", "log", "environment"} or {"stop": N}, and answers with
{"ended": N, "code": C}; bermo/jobs/nursery.py is the other end. When that one is gone, it stops its children
as Ctrl-C would; so does the system when the nursery itself is killed. Where a process with torch cannot be
forked (macOS, Windows), each command is a new process.

    python -m bermo.nursery
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

import psutil

from bermo.cli import build_parser
from bermo.interrupts import SIGNALLED
from bermo.verbs import VERBS

FORK: Callable[[], int] | None = getattr(os, "fork", None) if sys.platform == "linux" else None
"""None where a process with torch cannot be forked."""
IMPORTED = (
    "bermo.methods.finetune",
    "bermo.report.terminal",
    "bermo.verbs.starting",
    "transformers.tokenization_python",
    "transformers.models.bert.modeling_bert",
)
"""What every training imports, and the most frequent family's module with what that of any other takes."""
DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)
POLL_SECONDS = 0.02


class _Forked:
    """A forked child, with what subprocess.Popen says of one."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        """Return its exit code, minus a signal's number, or None while it lives."""
        found, status = os.waitpid(self.pid, _NO_WAIT)
        return os.waitstatus_to_exitcode(status) if found else None


_NO_WAIT: int = getattr(os, "WNOHANG", 0)
Child = _Forked | subprocess.Popen[bytes]
Children = dict[int, Child]
"""Commands under way, by the number that whoever started them knows."""


def serve() -> None:
    """Answer until standard input closes, then stop the children and wait for them."""
    if FORK:
        _import_all()
    read = _read if FORK else _threaded_read()
    children: Children = {}
    is_open, rest = True, b""
    while is_open or children:
        data = read(POLL_SECONDS if children else None) if is_open else None
        if not is_open:
            time.sleep(POLL_SECONDS)
        if data is not None:
            is_open = bool(data)
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                _obey(json.loads(line), children)
            if not is_open:
                _stop(children.values())
        for number, code in _reap(children):
            del children[number]
            with contextlib.suppress(BrokenPipeError):
                print(json.dumps({"ended": number, "code": code}), flush=True)


def _read(seconds: float | None) -> bytes | None:
    """Return what has come from standard input: nothing at its end, None if nothing came in time."""
    readable, _, _ = select.select([0], [], [], seconds)
    return os.read(0, 65536) if readable else None


def _threaded_read() -> Callable[[float | None], bytes | None]:
    """Return `_read` for systems that cannot fork: a thread waits, since Windows' `select` takes no pipe."""
    came: Queue[bytes] = Queue()

    def wait() -> None:
        while data := os.read(0, 65536):
            came.put(data)
        came.put(b"")

    def read(seconds: float | None) -> bytes | None:
        with contextlib.suppress(Empty):
            return came.get(timeout=seconds)
        return None

    Thread(target=wait, name="input", daemon=True).start()
    return read


def _import_all() -> None:
    """Import and make what every training needs, and exclude it from every collection of garbage."""
    gc.disable()
    for name in IMPORTED:
        importlib.import_module(name)
    # Both are kept by who makes them: options of all verbs, and names that weights had in older files.
    for verb in VERBS:
        build_parser(verb)
    with contextlib.suppress(ImportError, AttributeError):
        importlib.import_module("transformers.conversion_mapping").get_checkpoint_conversion_mapping("bert")
    gc.freeze()
    gc.enable()


def _obey(message: Mapping[str, Any], children: Children) -> None:
    if "start" in message:
        children[message["start"]] = _start(message)
    elif message["stop"] in children:
        _stop([children[message["stop"]]])


def _stop(children: Iterable[Child]) -> None:
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(child.pid).terminate()


def _reap(children: Children) -> list[tuple[int, int]]:
    """Return the children that have ended, with their exit codes; a signal's is 128 and its number."""
    codes = [(number, child.poll()) for number, child in children.items()]
    return [(number, code if code >= 0 else SIGNALLED - code) for number, code in codes if code is not None]


def _start(message: Mapping[str, Any]) -> Child:
    """Start a command."""
    if not FORK:
        with Path(message["log"]).open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "bermo", *message["words"]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **message["environment"]},
            )
    nursery = os.getpid()
    process = FORK()
    if process == 0:
        _live(message, nursery)
    return _Forked(process)


def _live(message: Mapping[str, Any], nursery: int) -> None:
    """Be `python -m bermo` in a forked process, and end it."""
    ctypes.CDLL(None).prctl(DIES_WITH_PARENT, signal.SIGTERM)
    if os.getppid() != nursery:
        os._exit(SIGNALLED + signal.SIGTERM)
    _leave_imports_whole()
    os.environ.update(message["environment"])
    log = os.open(message["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for stream, source in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log), (2, log)):
        os.dup2(source, stream)
    sys.stdout = open(1, "w", encoding="utf-8", newline="\n", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", buffering=1, newline="\n", closefd=False)  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["bermo", *message["words"]]
    code = 1
    try:
        runpy.run_module("bermo", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        # Not sys.exit: to take down all of torch's modules takes longer than a small training.
        os._exit(code)


def _leave_imports_whole() -> None:
    """Let this process undo at its end what it makes from now on, and not what the nursery's imports did.

    torch would unregister its operators one by one, and each change copies a page of the nursery's memory.
    """
    for finalizer in vars(weakref.finalize)["_registry"]:
        finalizer.atexit = False


if __name__ == "__main__":
    serve()
    # Not the end of every Python process: all of torch's modules would be taken down.
    os._exit(0)
