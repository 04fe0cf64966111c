"""The coming batches, made in a thread while the device works, so that no step waits for its tensors."""

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Feed(Generic[T]):
    """Calls `make(step)` for each step in turn, a few steps ahead, in a thread; with depth 0, when it is asked for."""

    def __init__(self, make: Callable[[int], T], first: int, last: int, depth: int) -> None:
        self.make, self.depth = make, depth
        self.ready: queue.Queue[T | BaseException] = queue.Queue(max(1, depth))
        self.is_closed = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(first, last), daemon=True)
        if depth:
            self.thread.start()

    def get(self, step: int) -> T:
        """Return what belongs to a step; they come in their order. An error of the thread is raised here."""
        if not self.depth:
            return self.make(step)
        item = self.ready.get()
        if isinstance(item, BaseException):
            raise item
        return item

    def close(self) -> None:
        """Stop the thread."""
        self.is_closed.set()
        if self.depth:
            self.thread.join()

    def _run(self, first: int, last: int) -> None:
        for step in range(first, last):
            try:
                item: T | BaseException = self.make(step)
            except BaseException as error:
                item = error
            while not self.is_closed.is_set():
                try:
                    self.ready.put(item, timeout=0.1)
                    break
                except queue.Full:
                    continue
            if self.is_closed.is_set() or isinstance(item, BaseException):
                return
