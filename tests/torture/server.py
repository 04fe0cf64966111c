"""A process that has imported torch and bermo once, and forks a child for each command.

    python -m tests.torture.server FD     JSON lines on the socket FD: a Command comes in, an Ended goes out

So a trial costs no imports. The child is a session of its own, runs the command as `bermo` would, and ends as
any Python process does, but for the taking down of modules. In it the shim, if it is preloaded, is armed.
"""

import atexit
import ctypes
import faulthandler
import gc
import importlib
import json
import mmap
import os
import signal
import socket
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

from tests.torture.faults import MOMENTS, NONE, Fault

IMPORTED = (
    "bermo.analyse.run",
    "bermo.methods.finetune",
    "bermo.verbs.starting",
    "bermo.methods.pretraining.run",
    "bermo.methods.probing.frozen",
    "bermo.report.bench",
    "bermo.report.frozen_probes",
    "bermo.report.page",
    "bermo.report.probe_table",
    "bermo.report.probing",
    "bermo.report.evaluation",
    "bermo.report.terminal",
    "bermo.ship.compress.run",
    "bermo.ship.runtimes.evaluate",
    "bermo.ship.runtimes.predict_file",
    "bermo.ship.shrink.run",
    "bermo.vectors",
    "transformers.models.bert.modeling_bert",
    "transformers.models.electra.modeling_electra",
    "transformers.models.auto.modeling_auto",
    "torch._dynamo",
    "torch.onnx._internal.exporter._core",
    "onnxscript",
    "networkx",
)
"""What commands import, except for onnxruntime and OpenVINO, whose threads do not outlive a fork."""
A_LOOK = 0.002
"""Seconds between two looks at a child."""
PAUSE = 0.05
"""Seconds that a stopped process waits to go on."""
COUNT_SIZE, HIT_SIZE = 8, 248
"""Bytes that the shim has for the number of calls, and for the call that was hit."""
LAST_WORDS = 1.0
"""Seconds that a process has to write where it hangs."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command of bermo's, where it runs, and what is done to it."""

    words: tuple[str, ...]
    folder: str
    """Where it runs; changes of files under it are counted."""
    cache: str
    log: str
    """Its output goes to LOG.out and LOG.err."""
    limit: float
    """Seconds after which it counts as hung."""
    fault: Fault = NONE


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended: its exit code (negative: the signal), its seconds, the changes that it made."""

    code: int
    seconds: float
    counted: int
    hit: str = ""
    """The call of the system that the fault came at."""
    is_hung: bool = False


def main(channel: socket.socket) -> None:
    """Answer commands until the other side closes the channel."""
    _import_all()
    counter = mmap.mmap(-1, COUNT_SIZE + HIT_SIZE)
    channel.sendall(b"ready\n")
    with channel.makefile("r") as lines:
        for line in lines:
            command = read_command(json.loads(line))
            counter[:] = bytes(len(counter))
            process = os.fork()
            if process == 0:
                channel.close()
                _run(command, counter)
            ended = _watch(process, command, counter)
            channel.sendall(json.dumps(asdict(ended)).encode() + b"\n")


def read_command(values: dict[str, Any]) -> Command:
    """Read a command from its JSON."""
    fault = values["fault"] | {"seconds": tuple(values["fault"]["seconds"])}
    return Command(**(values | {"fault": Fault(**fault), "words": tuple(values["words"])}))


def _import_all() -> None:
    for name in IMPORTED:
        with suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


def _run(command: Command, counter: mmap.mmap) -> NoReturn:
    """Be the command: this process's end is the command's."""
    from bermo import cli, interrupts

    os.setsid()
    os.chdir(command.folder)
    os.environ |= {"BERMO_CACHE": command.cache}
    tempfile.tempdir = None
    for name, number in (("out", 1), ("err", 2)):
        file = os.open(f"{command.log}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(file, number)
    faulthandler.register(signal.SIGUSR1, file=2)
    sys.argv = ["bermo", *command.words]
    interrupts.end_at_once()
    _arm(command, counter)
    code = cli.main()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    # Not sys.exit: to take down all of torch's modules takes longer than most commands.
    os._exit(code)


def _arm(command: Command, counter: mmap.mmap) -> None:
    """Tell the shim, where it is preloaded, what to count and which call to hit."""
    shim, fault = ctypes.CDLL(None), command.fault
    if not hasattr(shim, "torture_arm"):
        return
    shim.torture_arm(
        ctypes.c_char_p(os.fsencode(command.folder)),
        ctypes.byref(ctypes.c_long.from_buffer(counter)),
        ctypes.c_long(fault.at),
        ctypes.c_long(fault.again),
        MOMENTS.index(fault.moment),
        0 if fault.seconds else int(fault.signal),
        fault.error,
        fault.is_lasting,
    )


def _watch(process: int, command: Command, counter: mmap.mmap) -> Ended:
    """Send the signals that come at a time, wake what was stopped, and end what hangs."""
    start = time.monotonic()
    waiting = [start + seconds for seconds in command.fault.seconds]
    deadline, is_hung = start + command.limit, False
    while True:
        time.sleep(A_LOOK)
        found, status = os.waitpid(process, os.WNOHANG | os.WUNTRACED)
        if found and not os.WIFSTOPPED(status):
            break
        if found:
            time.sleep(PAUSE)
            os.kill(process, signal.SIGCONT)
        elif waiting and time.monotonic() >= waiting[0]:
            waiting.pop(0)
            _send(process, command.fault.signal)
        elif time.monotonic() >= deadline:
            is_hung, deadline = True, deadline + command.limit
            os.kill(process, signal.SIGUSR1)
            time.sleep(LAST_WORDS)
            os.kill(process, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    return Ended(
        code=os.waitstatus_to_exitcode(status),
        seconds=round(time.monotonic() - start, 3),
        counted=int.from_bytes(counter[:COUNT_SIZE], sys.byteorder),
        hit=counter[COUNT_SIZE:].partition(b"\0")[0].decode(errors="replace"),
        is_hung=is_hung,
    )


def _send(process: int, number: int) -> None:
    """Send a signal: Ctrl-C to all processes of the command, as a terminal does, others to the first."""
    with suppress(ProcessLookupError):
        (os.killpg if number == signal.SIGINT else os.kill)(process, number)


if __name__ == "__main__":
    faulthandler.enable()
    main(socket.socket(fileno=int(sys.argv[1])))
