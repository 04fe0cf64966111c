"""Numbers that become tensors on their device without a copy, and tensors without values without symbols."""

from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from bermo.nn.fast.overrides import NoSymbols, NumbersOnDevice


class Copies(TorchFunctionMode):
    """Counts the calls of torch.tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.tensor
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("number", [0.0, -1.5, 3, True])
@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_a_number_is_written_on_its_device(number: float, dtype: torch.dtype | None) -> None:
    wanted = torch.tensor(number, device="cpu", dtype=dtype)
    with Copies() as copies, NumbersOnDevice(torch.device("cpu")):
        made = torch.tensor(number, device="cpu", dtype=dtype)
    assert torch.equal(made, wanted)
    assert made.dtype == wanted.dtype
    assert copies.count == 0


def test_an_identity_matrix_without_a_device_is_made_on_that_of_the_context() -> None:
    with NumbersOnDevice(torch.device("meta")):
        assert torch.eye(3).is_meta
        assert torch.eye(2, 3, dtype=torch.bfloat16).dtype == torch.bfloat16
        assert torch.equal(torch.eye(3, device="cpu") @ torch.ones(3, device="cpu"), torch.ones(3))


def test_lists_and_numbers_without_a_device_are_left_to_torch() -> None:
    with Copies() as copies, NumbersOnDevice(torch.device("cpu")):
        assert torch.tensor([1, 2], device="cpu").tolist() == [1, 2]
        assert torch.tensor(2.0).item() == 2.0
    assert copies.count == 2


def test_tensors_without_values_have_the_shapes_and_dtypes_that_torch_gives_them() -> None:
    with NoSymbols(), torch.device("meta"):
        embedding, counted = torch.nn.Embedding(3, 2), torch.arange(2, 6)
        like = torch.empty_like(counted, device="cpu")
    assert embedding.weight.is_meta
    assert counted.is_meta
    assert (counted.shape, counted.dtype) == ((4,), torch.int64)
    assert (like.device.type, like.shape, like.dtype) == ("cpu", (4,), torch.int64)


def test_tensors_with_values_are_drawn_as_ever() -> None:
    torch.manual_seed(0)
    expected = torch.nn.Embedding(3, 2).weight
    torch.manual_seed(0)
    with NoSymbols():
        assert torch.equal(torch.nn.Embedding(3, 2).weight, expected)
