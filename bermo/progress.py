"""How long work shows its progress: the interface of every display, and a display that shows nothing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol


class Display(Protocol):
    """Where progress is shown."""

    def start(self, what: str, total: int, done: int) -> None: ...

    def step(self, done: int, loss: float | None) -> None: ...

    def tell(self, sentence: str) -> None: ...

    def close(self) -> None: ...


class Quiet:
    """A display that shows nothing."""

    def start(self, what: str, total: int, done: int) -> None: ...

    def step(self, done: int, loss: float | None) -> None: ...

    def tell(self, sentence: str) -> None: ...

    def close(self) -> None: ...


@contextmanager
def counted(display: Display, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show the progress of work as long as the block lasts; what is yielded takes the rows just done."""
    done = 0

    def advance(num_rows: int) -> None:
        nonlocal done
        done += num_rows
        display.step(done, None)

    display.start(what, total, 0)
    try:
        yield advance
    finally:
        display.close()
