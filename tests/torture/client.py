"""The driver's side of the fork server: compile the shim, start the server, ask it to run commands."""

import json
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

from tests.torture.server import Command, Ended

ROOT = Path(__file__).parents[2]
SHIM = Path(__file__).with_name("shim.c")


def compile_shim(folder: Path) -> Path | None:
    """Compile the preloaded library, or return None where this system cannot."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    library = folder / "shim.so"
    words = [compiler, "-shared", "-fPIC", "-O2", "-U_FORTIFY_SOURCE", "-o", library, SHIM, "-ldl"]
    done = subprocess.run(words, capture_output=True, check=False)
    return library if done.returncode == 0 else None


class Server:
    """A fork server, started and ready."""

    def __init__(self, shim: Path | None, folder: Path, number: int) -> None:
        own, other = socket.socketpair()
        environment = os.environ | {
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
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
        log = (folder / f"server-{number}.log").open("wb")
        with other, log:
            self.process = subprocess.Popen(
                words, cwd=ROOT, env=environment, pass_fds=[other.fileno()], stdout=log, stderr=log
            )
        self.channel = own
        self.lines = own.makefile("r")
        if self.lines.readline() != "ready\n":
            raise RuntimeError(f"The fork server did not start; see {log.name}.")

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
