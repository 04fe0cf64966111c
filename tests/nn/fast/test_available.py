"""Whether kernels can be built is found out once, also where a thread begins to look before it is asked."""

import importlib.util
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest
import torch

from bermo.nn.fast import available

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    available.find_fault.cache_clear()
    yield
    available.find_fault.cache_clear()


def test_who_asks_while_a_thread_looks_waits_for_what_it_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    has_begun, may_end, looks = Event(), Event(), list[str]()

    def find(name: str) -> Any:
        looks.append(name)
        has_begun.set()
        assert may_end.wait(20)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    available.look_for_kernels_(CPU)
    assert has_begun.wait(20)
    available.look_for_kernels_(CPU)
    may_end.set()
    assert available.kernel_fault() == "Triton is not installed"
    assert not available.has_kernels()
    assert looks == ["triton"]


def test_an_error_of_the_thread_is_raised_where_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> Any:
        raise MemoryError(name)

    monkeypatch.setattr(importlib.util, "find_spec", broken)
    available.look_for_kernels_(CPU)
    with pytest.raises(MemoryError, match="triton"):
        available.kernel_fault()


def test_a_first_product_draws_no_number_and_its_error_stops_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = torch.get_rng_state()
    available.first_product(CPU)
    assert torch.equal(torch.get_rng_state(), drawn)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(available, "first_product", lambda device: 1 / 0)
    available.look_for_kernels_(CPU)
    assert available.kernel_fault() == "Triton is not installed"
