"""SIGINT and SIGTERM collected while a training runs, so that it can save its state first."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def catch_signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM instead of dying; a second one takes the usual way."""
    caught: list[int] = []

    def note(number: int, frame: Any) -> None:
        if caught:
            raise KeyboardInterrupt
        caught.append(number)

    old = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            old[number] = signal.signal(number, note)
        except ValueError:  # not the main thread: whoever runs us there handles signals
            break
    try:
        yield caught
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
