"""Scripts run by two processes, or more, that train as one, as a launcher would start them.

They are forked where that can be, imports done (warm/), and end as any script's processes do: by themselves,
with all that the interpreter does at its end.
"""

import os
import random
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.warm.start import CAN_FORK, FOLDER, ROOT

SECONDS = 600.0
"""A process that takes longer hangs."""


class Pairs:
    """What runs scripts as several processes."""

    def __init__(self) -> None:
        self.python = f"{os.environ[FOLDER]}/python" if CAN_FORK else sys.executable

    def run(self, script: Path, *arguments: str, codes: tuple[int, ...] = (0, 0)) -> None:
        """Run a script as all processes of a group, and ask that they end with these exit codes."""
        said = [script.with_suffix(f".{rank}.log") for rank in range(len(codes))]
        group = {"WORLD_SIZE": str(len(codes)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        words = [self.python, str(script), *arguments]
        processes = [start(words, rank, group, path) for rank, path in enumerate(said)]
        ended = [wait(process) for process in processes]
        for code, wanted, path in zip(ended, codes, said, strict=True):
            assert code == wanted, f"ended with {code}: {path.read_text()[-3000:]}"


def start(words: list[str], rank: int, group: Mapping[str, str], said: Path) -> "subprocess.Popen[bytes]":
    """Start one process of a group, with the environment that a launcher would set."""
    own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    with said.open("w", encoding="utf-8") as errors:
        return subprocess.Popen(
            words,
            env={**os.environ, **group, **own},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )


def wait(process: "subprocess.Popen[bytes]") -> int:
    """Return the exit code of a process; what hangs is killed."""
    try:
        return process.wait(SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def free_port() -> int:
    """Return a port that nothing uses, outside of the range from which systems give ports by themselves."""
    while True:
        port = random.randrange(20000, 30000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
