"""The one error a user sees: what we got, what was expected, what to do."""

from collections.abc import Iterable
from difflib import get_close_matches


class BermoError(Exception):
    """A mistake in the user's input, as one sentence; the command prints it without a traceback."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ' Did you mean "x"?' for the known name closest to `name`, or the list of known ones."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    return f' Did you mean "{close[0]}"?' if close else f" Known: {', '.join(names)}."
