"""SIGINT, SIGTERM and SIGUSR2 collected while a training runs, so that it can save its state first."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bermo.interrupts import SCHEDULERS


@contextmanager
def catch_signals() -> Iterator[list[int]]:
    """Collect the signals instead of dying; a second Ctrl-C takes the usual way.

    Schedulers send theirs more than once, and to every process of a job. One that came too late to stop the
    block, such as in the evaluation after the last step, comes once more at its end: the command may have
    much more to do.
    """
    caught: list[int] = []

    def note(number: int, frame: Any) -> None:
        if caught and number == signal.SIGINT:
            raise KeyboardInterrupt
        caught.append(number)

    old = {}
    for number in (signal.SIGINT, *SCHEDULERS):
        try:
            old[number] = signal.signal(number, note)
        except ValueError:  # not the main thread: whoever runs us there handles signals
            break
    try:
        yield caught
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
    if caught:
        signal.raise_signal(caught[0])
