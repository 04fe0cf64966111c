"""A script run by two processes that train as one, as a launcher would start them but without the
launcher's own start.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = str(Path(__file__).parent.parent)
# Without the garbage collector an import of torch and transformers takes 2 of its 7 seconds less.
START = "import gc, runpy, sys; gc.disable(); del sys.argv[0]; runpy.run_path(sys.argv[0]); gc.freeze()"


def run_twice(script: Path, *arguments: str, codes: tuple[int, int] = (0, 0)) -> None:
    """Run a script as both processes of a group, and ask that they end with these exit codes: both well."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    shared |= {"PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", START, str(script), *arguments],
            env=os.environ | shared | {"RANK": rank, "LOCAL_RANK": rank},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ("0", "1")
    ]
    try:
        errors = [process.communicate(timeout=300)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    for process, code, error in zip(started, codes, errors, strict=True):
        assert process.returncode == code, f"ended with {process.returncode}: {error[-3000:]}"
