"""Packing: the way back is exact, every form, and as short as the entropy allows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bermo.errors import BermoError
from bermo.ship.runtimes.packed import Coding, pack, unpack


def random_matrix(density: float, shape: tuple[int, int] = (64, 96), seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    weights = generator.normal(0, 0.05, shape).astype(np.float32)
    return np.where(generator.random(shape) < density, weights, 0).astype(np.float32)


@pytest.mark.parametrize("density", [0.0, 0.003, 0.1, 0.5, 1.0])
def test_fp32_comes_back_to_the_bit(density: float) -> None:
    weights = random_matrix(density)
    assert np.array_equal(unpack(pack(weights, "fp32")), weights)


def test_fp16_comes_back_as_the_rounded_values() -> None:
    weights = random_matrix(0.1)
    expected = weights.astype(np.float16).astype(np.float32)
    assert np.array_equal(unpack(pack(weights, "fp16")), expected)


def test_int8_is_within_half_a_step_of_its_row() -> None:
    weights = random_matrix(0.1)
    steps = np.abs(weights).max(axis=1, keepdims=True) / 127
    assert (np.abs(unpack(pack(weights, "int8")) - weights) <= 0.5 * steps + 1e-9).all()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 3000), unique=True, max_size=40),
    st.sampled_from(["fp32", "fp16"]),
)
def test_any_positions_come_back(positions: list[int], values: Coding) -> None:
    flat = np.zeros(3001, dtype=np.float32)
    flat[positions] = 0.5
    weights = flat.reshape(1, -1)
    assert np.array_equal(unpack(pack(weights, values)), weights)


@pytest.mark.parametrize("steps", [0, 1, 254, 255, 256, 509, 510, 511, 1000])
def test_a_gap_of_any_length_comes_back(steps: int) -> None:
    weights = np.zeros((1, 1200), dtype=np.float32)
    weights[0, steps] = weights[0, 1100] = 1.0
    assert np.array_equal(unpack(pack(weights, "fp32")), weights)


def test_random_positions_cost_little_more_than_their_entropy() -> None:
    weights = random_matrix(0.1, (384, 1536))
    entropy = -(0.1 * np.log2(0.1) + 0.9 * np.log2(0.9))
    bits = 8 * pack(weights, "fp16").positions.nbytes / weights.size
    assert entropy < bits < 1.04 * entropy


def test_whole_rows_cost_next_to_nothing() -> None:
    weights = random_matrix(1.0, (384, 384))
    weights[::2] = 0
    assert pack(weights, "fp32").positions.nbytes < 500


def test_at_ten_percent_a_matrix_is_a_fifteenth_in_fp16_and_a_twentieth_in_int8() -> None:
    weights = random_matrix(0.1, (384, 1536))
    assert weights.nbytes / pack(weights, "fp16").num_bytes > 15
    assert weights.nbytes / pack(weights, "int8").num_bytes > 20


def test_a_weight_that_does_not_fit_is_refused() -> None:
    weights = random_matrix(0.1)
    weights[0, 0] = 1e6
    with (
        pytest.raises(BermoError, match=r"does not fit fp16.*--values fp32"),
        np.errstate(over="ignore"),
    ):
        pack(weights, "fp16")
