"""Values that several threads ask for, each made once."""

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Once(Generic[Key, Value]):
    """Whoever asks first makes the value of a key; only those who want the same one wait."""

    def __init__(self) -> None:
        self.values: dict[Key, Value] = {}
        self.locks: dict[Key, Lock] = {}

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """Return the value of a key; `make` makes it where there is none."""
        with self.locks.setdefault(key, Lock()):
            if key not in self.values:
                self.values[key] = make()
            return self.values[key]
