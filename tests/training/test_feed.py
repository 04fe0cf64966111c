"""Batches made ahead in a thread come in their order, once each, and its errors reach the loop."""

import threading

import pytest

from bermo.training.feed import Feed


@pytest.mark.parametrize("depth", [0, 1, 8])
def test_every_step_gets_its_own(depth: int) -> None:
    feed = Feed(lambda step: step * step, 3, 20, depth)
    assert [feed.get(step) for step in range(3, 20)] == [step * step for step in range(3, 20)]
    feed.close()


def test_an_error_of_the_thread_is_raised_where_the_batch_is_asked_for() -> None:
    def make(step: int) -> int:
        if step == 2:
            raise ValueError("torn file")
        return step

    feed = Feed(make, 0, 10, 4)
    assert [feed.get(0), feed.get(1)] == [0, 1]
    with pytest.raises(ValueError, match="torn file"):
        feed.get(2)
    feed.close()


def test_closing_in_the_middle_ends_the_threads_and_they_run_no_further_ahead_than_asked() -> None:
    made: list[int] = []
    feed = Feed(lambda step: made.append(step), 0, 10**9, 4)
    feed.get(0)
    feed.close()
    assert sorted(made) == list(range(len(made)))
    assert len(made) <= 5
    assert not any(thread.name.startswith("feed") for thread in threading.enumerate())
