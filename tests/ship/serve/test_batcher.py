"""The queue of a model: what is gathered, in which order it is answered, and what is refused."""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from bermo.errors import BermoError
from bermo.ship.serve.asked import Asked
from bermo.ship.serve.batcher import Batcher
from bermo.ship.serve.metrics import ModelMetrics
from bermo.ship.serve.refused import Refused
from bermo.ship.serve.spec import ServeSpec


class Model:
    """Answers each text with itself; waits while it is held, and fails at "bad"."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.is_free = threading.Event()
        self.is_free.set()

    def __call__(self, requests: Sequence[Asked]) -> list[list[str]]:
        self.is_free.wait(10)
        texts = [[text for (text,) in asked.rows] for asked in requests]
        self.batches.append([text for part in texts for text in part])
        if "bad" in self.batches[-1]:
            raise BermoError("A bad text.")
        return texts


def asked(*texts: str) -> Asked:
    return Asked(rows=tuple((text,) for text in texts))


def run(batcher: Batcher, *steps: Coroutine[Any, Any, Any]) -> list[Any]:
    """Run all steps at once beside the batcher's task."""

    async def together() -> list[Any]:
        task = asyncio.create_task(batcher.work())
        try:
            return await asyncio.gather(*steps, return_exceptions=True)
        finally:
            task.cancel()
            batcher.threads.shutdown()

    return asyncio.run(together())


@pytest.fixture
def model() -> Model:
    return Model()


def make(model: Model, **limits: Any) -> Batcher:
    return Batcher(model, ServeSpec(**{"batch_size": 2, "queue": 9} | limits), ModelMetrics("a"))


def test_what_waits_is_gathered_and_each_gets_its_own_answers(model: Model) -> None:
    model.is_free.clear()
    batcher = make(model)

    async def release() -> None:
        await asyncio.sleep(0.05)
        model.is_free.set()

    first = batcher.ask(asked("0"))
    rest = [batcher.ask(asked(str(n), f"{n}b")) for n in (1, 2, 3)]
    answers = run(batcher, first, _later(rest[0]), _later(rest[1]), _later(rest[2]), release())
    assert answers[:4] == [["0"], ["1", "1b"], ["2", "2b"], ["3", "3b"]]
    assert model.batches == [["0"], ["1", "1b", "2", "2b", "3", "3b"]]
    assert sum(batcher.metrics.batches.counts) == 2
    assert batcher.num_texts == 0


async def _later(step: Coroutine[Any, Any, Any]) -> Any:
    await asyncio.sleep(0.01)
    return await step


def test_no_more_is_gathered_than_some_batches_and_a_large_request_is_cut(model: Model) -> None:
    batcher = make(model, queue=100)
    texts = [str(n) for n in range(12)]
    answers = run(batcher, batcher.ask(asked(*texts)), *(batcher.ask(asked(text)) for text in texts))
    assert answers == [texts, *([text] for text in texts)]
    assert [len(batch) for batch in model.batches] == [8, 8, 8]


def test_threads_share_what_waits(model: Model) -> None:
    batcher = Batcher(model, ServeSpec(batch_size=2, queue=99), ModelMetrics("a"), num_workers=3)
    model.is_free.clear()
    texts = [str(n) for n in range(12)]

    async def release() -> None:
        await asyncio.sleep(0.02)
        model.is_free.set()

    answers = run(batcher, batcher.ask(asked(*texts)), release())
    assert answers[0] == texts
    assert sorted(len(batch) for batch in model.batches) == [4, 4, 4]


def test_a_full_queue_refuses_with_429_and_says_when_to_come_again(model: Model) -> None:
    batcher = make(model, queue=3)
    batcher.seconds_a_text = 2.0
    found = run(batcher, *(batcher.ask(asked("a", "b")) for _ in range(2)))
    assert found[0] == ["a", "b"]
    assert isinstance(found[1], Refused)
    assert (found[1].status, found[1].headers) == (429, {"Retry-After": "4"})


def test_a_request_that_waits_too_long_is_refused_with_504_and_never_computed(model: Model) -> None:
    model.is_free.clear()
    batcher = make(model, timeout=0.05)

    async def refused_then_free() -> list[Any]:
        asking = (batcher.ask(asked("a")), _later(batcher.ask(asked("b"))))
        answers = await asyncio.gather(*asking, return_exceptions=True)
        model.is_free.set()
        await asyncio.sleep(0.05)
        return answers

    (found,) = run(batcher, refused_then_free())
    assert [item.status for item in found] == [504, 504]
    assert model.batches == [["a"]]
    assert batcher.num_texts == 0


def test_a_text_that_fails_takes_no_other_request_with_it(model: Model) -> None:
    batcher = make(model)
    found = run(batcher, *(batcher.ask(asked(text)) for text in ("a", "bad", "b")))
    assert (found[0], found[2]) == (["a"], ["b"])
    assert (found[1].status, str(found[1])) == (500, "A bad text.")
