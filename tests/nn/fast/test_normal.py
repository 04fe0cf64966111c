"""Φ and φ in kernels, in Triton's interpreter, are those of the error function and the exponential."""

import math

import pytest
import torch

triton = pytest.importorskip("triton", reason="needs Triton")
tl = pytest.importorskip("triton.language")
normal = pytest.importorskip("bermo.nn.fast.normal_kernels").normal


@triton.jit
def _both(values, cumulated, density, SIZE: tl.constexpr):  # noqa: ANN001, ANN202
    at = tl.arange(0, SIZE)
    of_value, slope = normal(tl.load(values + at))
    tl.store(cumulated + at, of_value)
    tl.store(density + at, slope)


def test_both_are_those_of_the_error_function_and_the_exponential() -> None:
    values = torch.linspace(-9, 9, 1024)
    cumulated, density = torch.empty(2, 1024).unbind()
    _both[(1,)](values, cumulated, density, SIZE=1024)
    wide = values.double()
    torch.testing.assert_close(cumulated.double(), 0.5 * torch.erfc(-wide / math.sqrt(2)), rtol=0, atol=2e-7)
    expected = torch.exp(-wide.square() / 2) / math.sqrt(2 * math.pi)
    torch.testing.assert_close(density.double(), expected, rtol=1e-5, atol=1e-9)
