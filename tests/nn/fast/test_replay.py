"""Graphs give the plain results; what cannot be captured is computed plainly, and this is said."""

import threading
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from bermo.nn.fast.replay import Captured, Function, Replays, capture_graph

CPU = torch.device("cpu")


def batch_of(rows: int, length: int, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {"x": torch.randn(rows, length, generator=generator), "attention_mask": torch.ones(rows, length)}


def double(batch: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    return (2 * batch["x"] * batch["attention_mask"], batch["x"].sum(1))


def capture_eagerly(function: Function, batch: Mapping[str, Tensor], pool: Any) -> Captured:
    """A graph as a GPU has it, with inputs and outputs at fixed places, that the CPU runs again."""
    inputs = {name: tensor.clone() for name, tensor in batch.items()}
    outputs = function(inputs)

    def replay() -> None:
        for place, new in zip(outputs, function(inputs), strict=True):
            place.copy_(new)

    return Captured(inputs, outputs, replay)


def test_every_call_gives_the_plain_result_and_a_shape_is_captured_when_it_comes_again() -> None:
    replays = Replays(double, CPU, capture=capture_eagerly)
    for number, (rows, length) in enumerate([(2, 3), (2, 3), (4, 3), (2, 3), (2, 3), (4, 3)]):
        batch = batch_of(rows, length, seed=number)
        for found, expected in zip(replays(batch), double(batch), strict=True):
            assert torch.equal(found, expected)
    assert len(replays.graphs) == 2


def test_what_a_call_returned_is_not_overwritten_by_the_next() -> None:
    replays = Replays(double, CPU, capture=capture_eagerly)
    batches = [batch_of(2, 3, seed) for seed in range(4)]
    found = [replays(batch) for batch in batches]
    assert all(torch.equal(one[0], double(batch)[0]) for one, batch in zip(found, batches, strict=True))


def test_a_function_that_cannot_be_captured_goes_on_plainly_and_says_so_once() -> None:
    def fail(*_: Any) -> Captured:
        raise RuntimeError("operation not permitted when stream is capturing\nsecond line")

    replays, batch = Replays(double, CPU, capture=fail), batch_of(2, 3)
    replays(batch)
    with pytest.warns(UserWarning, match=r"cannot be captured as a CUDA graph \(operation not permitted"):
        assert torch.equal(replays(batch)[0], double(batch)[0])
    assert torch.equal(replays(batch)[0], double(batch)[0])
    assert not replays.graphs


def test_a_graph_that_gives_other_numbers_is_not_used() -> None:
    def wrong(function: Function, batch: Mapping[str, Tensor], pool: Any) -> Captured:
        return capture_eagerly(lambda b: tuple(1.01 * part for part in function(b)), batch, pool)

    replays, batch = Replays(double, CPU, capture=wrong), batch_of(2, 3)
    replays(batch)
    with pytest.warns(UserWarning, match=r"gives other numbers as a CUDA graph \(off by 1%\)"):
        assert torch.equal(replays(batch)[0], double(batch)[0])
    assert torch.equal(replays(batch)[0], double(batch)[0])


def test_threads_may_share_it() -> None:
    replays, errors = Replays(double, CPU, capture=capture_eagerly), []

    def ask(seed: int) -> None:
        for number in range(20):
            batch = batch_of(2, 3, 100 * seed + number)
            if not torch.equal(replays(batch)[0], double(batch)[0]):
                errors.append(seed)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
def test_a_graph_on_a_gpu_gives_the_plain_result() -> None:
    batch = {name: tensor.cuda() for name, tensor in batch_of(4, 8).items()}
    with torch.inference_mode():
        graph = capture_graph(double, batch, torch.cuda.graph_pool_handle())
        other = batch_of(4, 8, seed=1)
        assert torch.equal(graph.run(other)[0].cpu(), double(other)[0])
