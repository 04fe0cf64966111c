"""The driver's side of the fork server: compile the shim, start the server, ask it to run commands.

The compiled shim stays beside its source, so that it can be carried to a machine without a compiler.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

from tests.torture.server import Command, Ended

ROOT = Path(__file__).parents[2]
SHIM, COMPILED = Path(__file__).with_name("shim.c"), Path(__file__).with_name("shim.so")


def compile_shim(folder: Path, library: Path = COMPILED) -> Path | None:
    """Compile the preloaded library; without a compiler take the one that is there, or return None."""
    if not sys.platform.startswith("linux"):
        return None
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return library if library.is_file() else None
    made = folder / library.name
    words = [compiler, "-shared", "-fPIC", "-O2", "-U_FORTIFY_SOURCE", "-o", str(made), str(SHIM), "-ldl"]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        return None
    with suppress(OSError):  # in a tree that may not be written
        beside = library.with_name(f".{library.name}.{os.getpid()}.tmp")
        shutil.copyfile(made, beside)
        beside.replace(library)
    return made


class Server:
    """A fork server, started; it answers once it is ready."""

    def __init__(self, shim: Path | None, folder: Path, number: int) -> None:
        own, other = socket.socketpair()
        environment = os.environ | {
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            # To start a GPU takes longer than most commands, and others may measure on it.
            "CUDA_VISIBLE_DEVICES": "",
            "TOKENIZERS_PARALLELISM": "false",
            "TMPDIR": str(folder),
            "COLUMNS": "100",
            "NO_COLOR": "1",
            # Resumed by another server, a command has other hashes, as a new process would.
            "PYTHONHASHSEED": str(number + 1),
        }
        if shim is not None:
            environment["LD_PRELOAD"] = str(shim)
        words = [sys.executable, "-m", "tests.torture.server", str(other.fileno())]
        self.log = folder / f"server-{number}.log"
        with other, self.log.open("wb") as log:
            # A session of its own: Ctrl-C is for the driver.
            self.process = subprocess.Popen(
                words,
                cwd=ROOT,
                env=environment,
                pass_fds=[other.fileno()],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.channel = own
        self.lines = own.makefile("r")

    def wait_until_ready(self) -> None:
        """Wait until it has imported what commands need."""
        if self.lines.readline() != "ready\n":
            raise RuntimeError(f"The fork server did not start:\n{self.log.read_text(encoding='utf-8')}")

    def run(self, command: Command) -> Ended:
        """Run a command to its end."""
        self.channel.sendall(json.dumps(asdict(command)).encode() + b"\n")
        return Ended(**json.loads(self.lines.readline()))

    def __enter__(self) -> "Server":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.lines.close()
        self.channel.close()
        self.process.wait()
