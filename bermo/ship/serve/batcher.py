"""Requests that wait for a model, gathered and answered together.

A request waits as parts of at most one batch. A thread of the model that is free takes its share of what
waits, in the order in which it came, up to `GATHERED` batches; there they are sorted by length. Each request
gets its own answers in the order of its texts. Nobody waits for a batch to fill: where one request comes at a
time, each is answered at once.

    ask(asked)      one request's answers, or a refusal: 429 where too many texts wait, 504 after the time-out
    work()          the task that answers them, in the loop of the server
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from bermo.errors import BermoError
from bermo.ship.serve.asked import Asked
from bermo.ship.serve.metrics import ModelMetrics
from bermo.ship.serve.refused import Refused
from bermo.ship.serve.spec import ServeSpec

Answers = list[Any]
Compute = Callable[[Sequence[Asked]], list[Answers]]
GATHERED = 4
"""Batches that are gathered: enough for texts of like length, few enough that none waits long for others."""
FORGOTTEN = 0.8
"""How much of the known speed is kept when another batch was timed."""


@dataclass(frozen=True, eq=False)
class Waiting:
    """A part of a request and the promise of its answers."""

    asked: Asked
    answers: asyncio.Future[Answers] = field(default_factory=asyncio.Future)


class Batcher:
    """The queue of one model and the threads that it computes in."""

    def __init__(
        self, compute: Compute, spec: ServeSpec, metrics: ModelMetrics, num_workers: int = 1
    ) -> None:
        self.compute, self.spec, self.metrics = compute, spec, metrics
        self.waiting: deque[Waiting] = deque()
        self.has_come = asyncio.Event()
        self.threads = ThreadPoolExecutor(num_workers, thread_name_prefix="model")
        self.num_workers = self.num_idle = num_workers
        self.num_texts = 0
        """Texts that wait now."""
        self.seconds_a_text = 0.0

    async def ask(self, asked: Asked) -> Answers:
        """Wait for the answers to a request."""
        if self.num_texts + len(asked) > self.spec.queue:
            raise Refused(
                429,
                f"{self.num_texts:,} texts wait already, and {self.spec.queue:,} may. Try again later.",
                {"Retry-After": str(self._seconds_to_wait())},
            )
        items = [Waiting(part) for part in asked.parts(self.spec.batch_size)]
        self.waiting.extend(items)
        self.num_texts += len(asked)
        self.has_come.set()
        try:
            async with asyncio.timeout(self.spec.timeout):
                return list(chain.from_iterable(await asyncio.gather(*(item.answers for item in items))))
        except TimeoutError:
            raise Refused(
                504, f"There was no answer within {self.spec.timeout:g} s. Send fewer texts, or try later."
            ) from None

    def _seconds_to_wait(self) -> int:
        """Return after how many seconds what waits now will be done, at the speed of the last batches."""
        seconds = min(self.num_texts * self.seconds_a_text, self.spec.timeout)
        return max(1, math.ceil(seconds))

    async def work(self) -> None:
        """Answer what waits, for ever, in all threads of the model."""
        await asyncio.gather(*(self._work() for _ in range(self.num_workers)))

    async def _work(self) -> None:
        while True:
            await self.has_come.wait()
            taken = self._gather()
            if not taken:
                self.has_come.clear()
                continue
            self.num_idle -= 1
            await self._answer(taken)
            self.num_idle += 1

    def _gather(self) -> list[Waiting]:
        """Take a free thread's share of what came first; what nobody waits for any more is dropped."""
        room = min(GATHERED * self.spec.batch_size, math.ceil(self.num_texts / self.num_idle))
        taken = list[Waiting]()
        while self.waiting and (not taken or len(self.waiting[0].asked) <= room):
            item = self.waiting.popleft()
            self.num_texts -= len(item.asked)
            if not item.answers.done():
                taken.append(item)
                room -= len(item.asked)
        return taken

    async def _answer(self, taken: Sequence[Waiting]) -> None:
        started = time.perf_counter()
        try:
            found = await self._compute(taken)
        except Exception as error:
            if len(taken) > 1:  # one request may be at fault: no other fails with it
                for item in taken:
                    await self._answer([item])
                return
            if not taken[0].answers.done():
                taken[0].answers.set_exception(_as_refusal(error))
            return
        num_texts, seconds = sum(len(item.asked) for item in taken), time.perf_counter() - started
        self.metrics.count_batch(num_texts, seconds)
        self.seconds_a_text = FORGOTTEN * self.seconds_a_text + (1 - FORGOTTEN) * seconds / num_texts
        for item, answers in zip(taken, found, strict=True):
            if not item.answers.done():  # cancelled: its client has gone, or its time is over
                item.answers.set_result(answers)

    async def _compute(self, taken: Sequence[Waiting]) -> list[Answers]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.threads, self.compute, [item.asked for item in taken])


def _as_refusal(error: Exception) -> Exception:
    return Refused(500, str(error)) if isinstance(error, BermoError) else error
