"""What a verb of the command is: its help, its options as a dataclass, and its function."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Verb:
    """`run` gets an instance of `options` and returns the exit code."""

    help: str
    options: type
    run: Callable[[Any], int]
    usage: str | None = None
