"""The process that has imported torch and transformers, and forks whatever its clients ask for.

    python -m tests.warm.server SOCKET PYTHON     until standard input closes

It imports when the first client comes: a run of tests that starts no process pays nothing. A forked process
sees PYTHON, which is our client, as its interpreter, so that what it starts is forked too. A script ends as
every Python process does; a module (-m) and a command (-c) leave out the taking down of torch's modules,
which takes longer than most of them run.
"""

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import multiprocessing
import os
import runpy
import select
import signal
import socket
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from tests.warm.client import CODE_BYTES, PASSED_ON

IMPORTED = (
    "bermo.cli",
    "bermo.methods.finetune",
    "bermo.report.evaluation",
    "bermo.report.page",
    "bermo.report.terminal",
    "bermo.runs.loading",
    "bermo.runs.trained",
    "bermo.ship.bench.worker",
    "bermo.ship.runtimes.predict_file",
    "bermo.ship.runtimes.torch_candidate",
    "bermo.ship.shrink.run",
    "bermo.verbs.starting",
    "onnxscript.function_libs.torch_lib.ops",
    "tests.short_fits",
    "tests.toy",
    "torch.export._trace",
    "transformers.models.auto.modeling_auto",
    "transformers.models.bert.modeling_bert",
)
"""What commands import, except for onnxruntime and OpenVINO, whose threads do not outlive a fork."""
MOST_FILES = 64
A_LOOK = 0.01
"""Seconds between two looks at the forked processes."""
DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)
ASIDE = 500
"""Numbers of files from here on are free while they are put in their places."""


def serve(path: str, python: str) -> dict[str, Any] | None:
    """Fork until standard input closes, then end what still runs; return its request in a forked process."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    children: dict[int, socket.socket] = {}
    while True:
        waits = A_LOOK if children else None
        readable, _, _ = select.select([0, listener, *children.values()], [], [], waits)
        if 0 in readable:
            for process in children:
                os.kill(process, signal.SIGKILL)
            return None
        if listener in readable:
            import_all()
            client, _ = listener.accept()
            request, files = receive(client)
            if request is None:
                client.close()
                continue
            process = os.fork()
            if process == 0:
                for opened in (listener, client, *children.values()):
                    opened.close()
                become(request, files, python)
                return request
            children[process] = client
            for number in files:
                os.close(number)
        for process in [process for process, client in children.items() if client in readable]:
            pass_on(process, children[process])
        reap(children)


def import_all() -> None:
    """Import what is asked for most, once, and exclude it from every collection of garbage."""
    if gc.get_freeze_count():
        return
    gc.disable()
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    gc.enable()


def receive(client: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """Read a request and the files that come with it; there is none of a client that was killed meanwhile."""
    size, files, _, _ = socket.recv_fds(client, CODE_BYTES, MOST_FILES)
    body = client.recv(int.from_bytes(size, "little"), socket.MSG_WAITALL)
    if body and len(body) == int.from_bytes(size, "little"):
        return json.loads(body), files
    for number in files:
        os.close(number)
    return None, []


def pass_on(process: int, client: socket.socket) -> None:
    """Send a process the signals that its client got; one whose client is gone is killed."""
    try:
        numbers = client.recv(64)
    except ConnectionResetError:
        numbers = b""
    for number in numbers or [signal.SIGKILL]:
        os.kill(process, number)


def reap(children: dict[int, socket.socket]) -> None:
    """Tell the clients of those that have ended how they did."""
    for process in list(children):
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            with children.pop(process) as client, contextlib.suppress(ConnectionError):
                client.sendall(code.to_bytes(CODE_BYTES, "little", signed=True))


def become(request: dict[str, Any], files: list[int], python: str) -> None:
    """Turn this forked process into what was asked for: files, folder, environment, signals, names."""
    os.setsid()
    ctypes.CDLL(None).prctl(DIES_WITH_PARENT, signal.SIGKILL)
    aside = [fcntl.fcntl(number, fcntl.F_DUPFD, ASIDE) for number in files]
    for number in files:
        os.close(number)
    for number, wanted in zip(aside, request["files"], strict=True):
        os.dup2(number, wanted)
        os.close(number)
    for number in {0, 1, 2} - set(request["files"]):
        os.close(number)
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None
    os.chdir(request["folder"])
    for number in PASSED_ON:
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in request["ignored"] else default)
    sys.stdin, sys.stdout, sys.stderr = (_stream(number) for number in range(3))
    sys.executable = python
    multiprocessing.set_executable(python)
    from tests.short_fits import VARIABLE, shorten

    if VARIABLE in os.environ:
        shorten()


def _stream(number: int) -> Any:
    try:
        os.fstat(number)
    except OSError:
        return None
    mode, errors = "r" if number == 0 else "w", "backslashreplace" if number == 2 else None
    return open(number, mode, buffering=1 if number == 2 else -1, errors=errors, closefd=False)


def run(words: list[str]) -> None:
    """Run a module, code or a script as Python would, with its words."""
    kind, *rest = words
    sys.orig_argv = [sys.executable, *words]
    if kind == "-m":
        sys.argv, sys.path[0] = ["-m", *rest[1:]], str(Path.cwd())
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind in ("-c", "-"):
        sys.argv, sys.path[0] = [kind, *rest[1:]] if kind == "-c" else words, ""
        code = rest[0] if kind == "-c" else sys.stdin.read()
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv[:] = words
        runpy.run_path(kind, run_name="__main__")


def end(words: list[str]) -> None:
    """Run, then do what Python does at its end but for the taking down of modules."""
    code = 1
    try:
        run(words)
        code = 0
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            print(ended.code, file=sys.stderr)
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(code)


if __name__ == "__main__":
    asked = serve(*sys.argv[1:])
    if asked is not None and asked["words"][0] in ("-m", "-c", "-"):
        end(asked["words"])
    elif asked is not None:
        run(asked["words"])
