"""A spec as the command that trains it: `bermo train` with the options that differ from their defaults."""

import shlex
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from bermo.fields import Leaf, leaves
from bermo.spec import RunSpec


def train_command(spec: RunSpec, out: Path) -> tuple[str, ...]:
    """Return the words after `bermo` that train the spec in a folder; they are read back as the same spec."""
    words = ["train"]
    for leaf, read in _options():
        if (value := read(spec)) != leaf.default:
            words += _flag(leaf, value)
    return (*words, "--out", str(out))


@cache
def _options() -> list[tuple[Leaf, Callable[[RunSpec], Any]]]:
    """The options with their defaults, and what reads their values; types are looked up once for all runs."""
    return [(leaf, attrgetter(leaf.dotted)) for leaf in leaves(RunSpec)]


def shown(words: tuple[str, ...]) -> str:
    """Return a command as a shell takes it."""
    return shlex.join(["bermo", *words])


def _flag(leaf: Leaf, value: Any) -> list[str]:
    flag, text = f"--{leaf.flag}", _text(value)
    if leaf.dotted == "seeds" and len(value) == 1:
        # One number alone would be how many.
        text += ","
    return [f"{flag}={text}"] if text.startswith("-") else [flag, text]


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
