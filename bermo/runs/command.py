"""A spec as the command that trains it: `bermo train` with the options that differ from their defaults."""

import shlex
from pathlib import Path
from typing import Any

from bermo.fields import Leaf, leaves
from bermo.spec import RunSpec


def train_command(spec: RunSpec, out: Path) -> tuple[str, ...]:
    """Return the words after `bermo` that train the spec in a folder; they are read back as the same spec."""
    words = ["train"]
    for leaf, usual in zip(leaves(spec), leaves(RunSpec), strict=True):
        if leaf.default != usual.default:
            words += _flag(leaf)
    return (*words, "--out", str(out))


def shown(words: tuple[str, ...]) -> str:
    """Return a command as a shell takes it."""
    return shlex.join(["bermo", *words])


def _flag(leaf: Leaf) -> list[str]:
    flag, value = f"--{leaf.flag}", leaf.default
    text = _text(value)
    if leaf.dotted == "seeds" and len(value) == 1:
        # One number alone would be how many.
        text += ","
    return [f"{flag}={text}"] if text.startswith("-") else [flag, text]


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
