"""What the attempts of a job print: a file for the last one, and the two before it."""

from itertools import pairwise
from pathlib import Path

NUM_EARLIER = 2


def make_room(log: Path) -> None:
    """Move the log of the last attempt away, NAME.log to NAME.1.log and so on; the oldest is dropped."""
    log.parent.mkdir(parents=True, exist_ok=True)
    names = [log, *(log.with_suffix(f".{k}{log.suffix}") for k in range(1, NUM_EARLIER + 1))]
    for newer, older in reversed(list(pairwise(names))):
        if newer.exists():
            newer.replace(older)
