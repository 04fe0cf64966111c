"""The next batches, made in threads while the device works, so that no step waits for its tensors."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")
# NumPy cuts and pads arrays outside Python's lock, so that a few threads help.
WORKERS = 3


class Feed(Generic[T]):
    """Calls `make(step)` for the next `depth` steps in threads; with depth 0, in `get` itself."""

    def __init__(self, make: Callable[[int], T], first: int, last: int, depth: int) -> None:
        self.make, self.last, self.depth = make, last, depth
        self.pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="feed")
        self.waiting: deque[Future[T]] = deque()
        self.next = first

    def get(self, step: int) -> T:
        """Return what was made for a step; steps come in their order. An error of a thread is raised here."""
        if not self.depth:
            return self.make(step)
        while self.next < min(self.last, step + 1 + self.depth):
            self.waiting.append(self.pool.submit(self.make, self.next))
            self.next += 1
        return self.waiting.popleft().result()

    def close(self) -> None:
        """Stop the threads, and drop what was made ahead."""
        self.pool.shutdown(wait=True, cancel_futures=True)
