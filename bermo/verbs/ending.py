"""How a command ends: its exit codes, and what it says when it was stopped."""

import os
import sys

from bermo.interrupts import STOPPED


def say_stopped(stopped: Exception) -> int:
    """Say where the run stopped, and return the exit code of a command that is to be called again."""
    print(f"bermo: {stopped} The same command goes on from there.", file=sys.stderr)
    return STOPPED


def is_main_process() -> bool:
    """Tell whether this process prints: the first of several."""
    return int(os.environ.get("RANK", "0")) == 0
