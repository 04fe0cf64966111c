"""Choices that several verbs offer: the device, what stands between columns, and a tracker."""

from importlib.util import find_spec
from typing import Literal

from bermo.fields import Rules
from bermo.machine import has_gpu_driver, processor

SEPARATORS = {"tab": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}
"""The separators of columns that are recognised, by their names."""
SEPARATOR_HELP = (
    "what stands between columns: tab, comma, semicolon, pipe or a character; default: recognised"
)
Tracker = Literal["none", "tensorboard", "wandb", "mlflow", "trackio"]
Device = Literal["auto", "cpu", "cuda"]
DEVICE_HELP = "auto takes a GPU where there is one"


def separator_character(name: str | None) -> str | None:
    """Return the separator of columns that a user names; None is to be recognised."""
    return None if name is None else SEPARATORS.get(name, "\t" if name == r"\t" else name)


def separator_rule(name: str | None) -> tuple[bool, str]:
    """A separator is one character."""
    character = separator_character(name)
    is_character = character is None or (len(character) == 1 and character not in '"\r\n')
    return (is_character, f"separator must be {', '.join(SEPARATORS)} or one character, but got {name!r}.")


def device_rules(device: Device) -> Rules:
    """A GPU that is asked for must be there: its driver, as far as can be told without torch."""
    if device != "cuda" or has_gpu_driver():
        return []
    own = processor()
    return [
        (
            False,
            "--device cuda needs a GPU, and there is no driver of one on this machine, only the CPU"
            f" ({own.name}, {own.cores} cores). Leave --device out.",
        )
    ]


def tracker_rule(tracker: Tracker) -> tuple[bool, str]:
    """A tracker that is asked for must be installed."""
    is_there = tracker == "none" or find_spec(tracker) is not None
    return (is_there, f'The tracker "{tracker}" is not installed: pip install {tracker}')
