"""Starts the server of warm processes, and writes the programs that stand for `python` and `bermo`."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
CAN_FORK = sys.platform == "linux"
"""Only Linux forks safely after imports of torch; elsewhere processes are started anew."""
FOLDER = "BERMO_TESTS_WARM"
"""The variable that tells other processes of the tests where the programs are."""


class Warm:
    """The server, and a folder with its socket and the programs."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="warm-"))
        where = self.folder / "socket"
        client = [sys.executable, "-IS", str(ROOT / "tests" / "warm" / "client.py"), str(where)]
        for name, words in (("python", client), ("bermo", [*client, "-m", "bermo"])):
            program = self.folder / name
            program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
            program.chmod(0o755)
        own = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        self.server = subprocess.Popen(
            [sys.executable, "-m", "tests.warm.server", str(where), str(self.folder / "python")],
            cwd=ROOT,
            env=os.environ | own,
            stdin=subprocess.PIPE,
        )
        os.environ[FOLDER] = str(self.folder)

    def close(self) -> None:
        """End the server, and with it whatever it has forked."""
        assert self.server.stdin is not None
        self.server.stdin.close()
        self.server.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
