"""The one error a user sees: what we got, what was expected, what to do."""

from collections.abc import Iterable
from difflib import get_close_matches


class BermoError(Exception):
    """A mistake in the user's input, as one sentence; the command prints it without a traceback.

    >>> bermo.Movement(density=7)
    Traceback (most recent call last):
        …
    bermo.errors.BermoError: density is the share kept, over 0 and at most 1, but got 7.
    """


class FolderHeld(BermoError):
    """Another process is at work in the folder: the same command may be called again later."""


OTHER_WORDS = {
    "gpu": "cuda",
    "cuda:0": "cuda",
    "float32": "fp32",
    "32": "fp32",
    "float16": "fp16",
    "half": "fp16",
    "16": "fp16",
    "bfloat16": "bf16",
    "cls": "first",
    "average": "mean",
    "avg": "mean",
    "int8": "onnx-int8",
}
"""What others call a choice of ours."""


LONGEST = 100
"""Letters of a name that are compared: the time grows with their square."""
MOST_SHOWN = 60
"""Letters of a name that an error shows."""
SHOWN = 40
"""Known names that are listed: more than there are of any choice of ours, but a file may have any number."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ' Did you mean "x"?' for the known name closest to `name`, or the list of known ones."""
    names = sorted(known)
    name = str(name)[:LONGEST]
    if OTHER_WORDS.get(name.lower()) in names:
        return f' Did you mean "{OTHER_WORDS[name.lower()]}"?'
    in_small = {known.lower(): known for known in names}
    close = get_close_matches(name.lower(), in_small, n=1, cutoff=0.5)
    if close:
        return f' Did you mean "{shortened(in_small[close[0]])}"?'
    more = f", … ({len(names)} in all)" if names[SHOWN:] else ""
    return f" Known: {', '.join(map(shortened, names[:SHOWN]))}{more}."


def shortened(name: str) -> str:
    """Return a label of a user's file as an error shows it: a whole text may stand in its place."""
    return name if len(name) <= MOST_SHOWN else name[:MOST_SHOWN] + "…"
