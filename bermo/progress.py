"""How long work shows its progress: the interface of every display, and a display that shows nothing."""

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
