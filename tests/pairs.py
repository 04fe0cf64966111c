"""Scripts run by two processes, or more, that train as one, as a launcher would start them.

    python -m tests.pairs     import torch and transformers once, then fork a pair for each request

An import takes seconds of each process, and many tests need a pair. The processes end as any script's do:
by themselves, with all that the interpreter does at its end. Only Linux forks safely after such imports;
elsewhere a pair is started anew.
"""

import json
import os
import random
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
CAN_FORK = sys.platform == "linux"
STARTED: list[subprocess.Popen[bytes]] = []
"""Processes that were started anew; they are waited for by their numbers, as forked ones are."""
SECONDS = 600.0
"""A pair that takes longer hangs."""


class Pairs:
    """The tests' end of the process that forks pairs."""

    def __init__(self) -> None:
        own = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        self.server = subprocess.Popen(
            [sys.executable, "-m", "tests.pairs"],
            cwd=ROOT,
            env=os.environ | own,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, script: Path, *arguments: str, codes: tuple[int, ...] = (0, 0)) -> None:
        """Run a script as all processes of a group, and ask that they end with these exit codes."""
        said = [script.with_suffix(f".{rank}.log") for rank in range(len(codes))]
        group = {"WORLD_SIZE": str(len(codes)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        request = {
            "arguments": [str(script), *arguments],
            "environment": {**os.environ, **group, "OMP_NUM_THREADS": "1"},
            "said": [str(path) for path in said],
        }
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        ended = json.loads(self.server.stdout.readline())
        for code, wanted, path in zip(ended, codes, said, strict=True):
            assert code == wanted, f"ended with {code}: {path.read_text()[-3000:]}"

    def close(self) -> None:
        """End the process; it does so by itself where nothing more can come."""
        self.server.communicate()


def free_port() -> int:
    """Return a port that nothing uses, outside of the range from which systems give ports by themselves."""
    while True:
        port = random.randrange(20000, 30000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


def main() -> None:
    """Fork a pair for each line of the input, and print the exit codes."""
    for line in sys.stdin:
        request = json.loads(line)
        processes = []
        for rank in range(len(request["said"])):
            process = os.fork() if CAN_FORK else start(rank, request)
            if process == 0:
                become(rank, request)
                runpy.run_path(sys.argv[0], run_name="__main__")
                return
            processes.append(process)
        print(json.dumps(wait(processes)), flush=True)


def environment_of(rank: int, request: dict[str, Any]) -> dict[str, str]:
    """Return the environment of one of the pair, as a launcher would set it."""
    return {**request["environment"], "RANK": str(rank), "LOCAL_RANK": str(rank)}


def become(rank: int, request: dict[str, Any]) -> None:
    """Turn this process into one of the pair: its environment, its arguments, and where its errors go."""
    os.environ.clear()
    os.environ.update(environment_of(rank, request))
    sys.argv[:] = request["arguments"]
    for stream, path in ((0, os.devnull), (1, os.devnull), (2, request["said"][rank])):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), stream)


def start(rank: int, request: dict[str, Any]) -> int:
    """Start one of the pair as a process of its own."""
    with Path(request["said"][rank]).open("w", encoding="utf-8") as said:
        process = subprocess.Popen(
            [sys.executable, *request["arguments"]],
            env={**environment_of(rank, request), "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
    STARTED.append(process)
    return process.pid


def wait(processes: Sequence[int]) -> list[int]:
    """Return the exit codes of processes, as subprocess gives them; what hangs is killed."""
    codes: dict[int, int] = {}
    ends = time.monotonic() + SECONDS
    while len(codes) < len(processes):
        for process in set(processes) - codes.keys():
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                codes[process] = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > ends:
                os.kill(process, signal.SIGKILL)
        time.sleep(0.02)
    return [codes[process] for process in processes]


if __name__ == "__main__":
    if CAN_FORK:
        import gc

        # Walks through all that is imported take 2 of 7 seconds.
        gc.disable()
        import bermo.methods.finetune  # noqa: F401
        import tests.toy  # noqa: F401

        gc.freeze()
    main()
