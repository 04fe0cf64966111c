"""The quick interpreter of kernels computes what torch does, and refuses integers that overflow."""

import pytest
import torch

triton = pytest.importorskip("triton", reason="needs Triton")
tl = triton.language
SIZE = 4


@triton.jit
def compute(x, y, out, OPERATION: tl.constexpr, SIZE: tl.constexpr):  # noqa: ANN001, ANN201
    places = tl.arange(0, SIZE)
    one, other = tl.load(x + places), tl.load(y + places)
    if OPERATION == "add":
        found = one + other
    elif OPERATION == "sub":
        found = one - other
    elif OPERATION == "mul":
        found = one * other
    else:
        found = tl.sum(one[:, None] * other[None, :] + places, 1)
    tl.store(out + places, found)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize(
    ("operation", "x", "y"),
    [("add", 2**31 - 1, 1), ("sub", -(2**31), 1), ("mul", 2**16, 2**15), ("mul", -(2**16), 2**15 + 1)],
)
def test_integers_that_have_more_bits_than_they_may_are_refused(
    operation: str, x: int, y: int, dtype: torch.dtype
) -> None:
    given = [torch.tensor([0, 0, number, 0], dtype=dtype) for number in (x, y)]
    out = torch.empty_like(given[0])
    if dtype == torch.int32:
        with pytest.raises(Exception, match=f"int32 overflow detected for operation {operation}"):
            compute[(1,)](*given, out, operation, SIZE)
        return
    compute[(1,)](*given, out, operation, SIZE)
    assert torch.equal(out, getattr(torch, operation)(*given))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.float16])
def test_shapes_are_made_alike_for_every_kind_of_number(dtype: torch.dtype) -> None:
    given = [torch.tensor([1, 2, 3, 4]).to(dtype), torch.tensor([5, 6, 7, 8]).to(dtype)]
    out = torch.empty_like(given[0])
    compute[(1,)](*given, out, "outer", SIZE)
    expected = given[0][:, None] * given[1] + torch.arange(SIZE)
    assert torch.equal(out, expected.sum(1).to(dtype))


@triton.jit
def count(out, number):  # noqa: ANN001, ANN201
    total = 0
    for step in range(0, number, 2):
        total += step
    tl.store(out, total)


def test_a_range_may_end_at_a_number_given_at_run_time() -> None:
    out = torch.zeros(1, dtype=torch.int32)
    count[(1,)](out, 7)
    assert out.item() == 0 + 2 + 4 + 6
