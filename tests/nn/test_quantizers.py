"""Fake quantisers give the numbers of int8 arithmetic, written out slowly, and let gradients through."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from bermo.nn.quantizers import (
    Switch,
    quantize_batch,
    quantize_binary,
    quantize_matrix,
    quantize_table,
    quantize_ternary,
)
from bermo.ship.runtimes.overflow import encode, safe_scales


def test_matrices_are_rounded_as_the_export_codes_them() -> None:
    weight_OI = torch.randn(7, 12, generator=torch.Generator().manual_seed(1))
    weight_OI[3] = 0
    scales = safe_scales(weight_OI.T.numpy())
    expected = encode(weight_OI.T.numpy(), scales) * scales
    np.testing.assert_array_equal(quantize_matrix(weight_OI).T.numpy(), expected)
    assert quantize_matrix(torch.tensor([[2.0], [-3.0]])).tolist() == [[2.0], [-3.0]]


def test_ternary_and_binary_rows_are_the_papers_formulas() -> None:
    table = torch.randn(4, 9, generator=torch.Generator().manual_seed(6))
    for row, three, two in zip(table, quantize_ternary(table), quantize_binary(table), strict=True):
        limit = 0.7 * sum(abs(w) for w in row.tolist()) / 9
        large = [abs(w) for w in row.tolist() if abs(w) > limit]
        alpha, mean = sum(large) / len(large), sum(abs(w) for w in row.tolist()) / 9
        expected = [math.copysign(alpha, w) if abs(w) > limit else 0.0 for w in row.tolist()]
        assert three.tolist() == pytest.approx(expected)
        assert two.tolist() == pytest.approx([math.copysign(mean, w) for w in row.tolist()])


def test_tables_have_a_scale_for_each_row() -> None:
    table = torch.randn(5, 8, generator=torch.Generator().manual_seed(2))
    for row, rounded in zip(table, quantize_table(table), strict=True):
        scale = row.abs().max() / 127
        torch.testing.assert_close(rounded, torch.stack([round(float(w / scale)) * scale for w in row]))


@pytest.mark.parametrize("shift", [-5.0, 0.0, 5.0])
def test_a_batch_is_rounded_as_onnx_defines_dynamic_quantisation(shift: float) -> None:
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(3)) + shift
    low, high = min(0.0, float(x.min())), max(0.0, float(x.max()))
    scale = (high - low) / 255
    zero = round(-low / scale)
    codes = [min(255, max(0, round(float(value) / scale) + zero)) for value in x.flatten()]
    expected = torch.tensor([(code - zero) * scale for code in codes]).view_as(x)
    torch.testing.assert_close(quantize_batch(x), expected)
    assert quantize_batch(torch.zeros(2, 2)).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_gradients_pass_as_if_nothing_had_been_rounded_and_the_switch_turns_rounding_off() -> None:
    switch, x = Switch(), torch.randn(4, 4, requires_grad=True)
    assert switch.apply_to(x, quantize_batch) is x
    switch.set_(True)
    y = switch.apply_to(x, quantize_batch)
    assert torch.equal(y, quantize_batch(x.detach()))
    assert not torch.equal(y, x)
    (y * torch.arange(16.0).view(4, 4)).sum().backward()
    assert torch.equal(x.grad, torch.arange(16.0).view(4, 4))


@pytest.mark.parametrize(
    "quantize", [quantize_batch, quantize_table, quantize_matrix, quantize_ternary, quantize_binary]
)
def test_half_precision_is_rounded_by_the_codes_of_its_values(quantize: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(40, 40, generator=torch.Generator().manual_seed(5)).bfloat16()
    assert torch.equal(quantize(x), quantize(x.float()).bfloat16())
