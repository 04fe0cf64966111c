"""GOBO's coding: nearest centroids, outliers to the bit, and the way back."""

import math

import numpy as np
import pytest

from bermo.ship.runtimes.centroids import code, find_outliers, fit_centroids, nearest
from bermo.ship.runtimes.packed import Coding, pack, unpack


def weights_of(size: int = 4000, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    weights = generator.normal(0.01, 0.04, size).astype(np.float32)
    weights[::500] = 0.6
    return weights


def test_weights_go_to_the_nearest_centroid_and_outliers_stay_to_the_bit() -> None:
    weights = weights_of()
    coded = code(weights, 3)
    restored = coded.values()
    for weight, value in zip(weights, restored, strict=True):
        deviation = (weight - weights.mean()) / weights.std()
        log_density = math.log(math.exp(-0.5 * deviation**2) / (weights.std() * math.sqrt(2 * math.pi)))
        if log_density < -4:
            assert value == weight
        else:
            assert abs(value - weight) <= min(abs(coded.centroids - weight)) + 1e-7
    assert len(coded.centroids) == 8
    assert 8 <= len(coded.outliers) < 20


def test_centroids_end_where_the_distance_no_longer_falls_and_beat_even_steps() -> None:
    weights = weights_of()
    inner = weights[~find_outliers(weights)]
    start = np.array([part.mean() for part in np.array_split(np.sort(inner), 8)], dtype=np.float32)
    fitted = fit_centroids(inner, 8)
    moved = np.array([inner[nearest(inner, fitted) == k].mean() for k in range(8)], dtype=np.float32)

    def distance(centroids: np.ndarray) -> float:
        return float(np.abs(inner[:, None] - centroids).min(axis=1).sum(dtype=np.float64))

    assert distance(fitted) < distance(start)
    assert distance(moved) >= distance(fitted) * (1 - 1e-6)
    assert distance(fitted) < 0.8 * distance(np.linspace(inner.min(), inner.max(), 8))


@pytest.mark.parametrize(("coding", "bits"), [("gobo3", 3), ("gobo4", 4)])
@pytest.mark.parametrize("density", [0.1, 1.0])
def test_a_packed_matrix_comes_back_as_coded_in_about_its_bits(
    coding: Coding, bits: int, density: float
) -> None:
    weights = weights_of(96 * 384).reshape(96, 384)
    weights = np.where(np.random.default_rng(1).random(weights.shape) < density, weights, 0).astype(
        np.float32
    )
    packed = pack(weights, coding)
    expected = np.zeros_like(weights)
    expected[weights != 0] = code(weights[weights != 0], bits).values()
    np.testing.assert_array_equal(unpack(packed), expected)
    assert 8 * packed.codes.nbytes < 1.05 * bits * np.count_nonzero(weights)


@pytest.mark.parametrize(
    "weights", [np.zeros((2, 3)), np.ones((2, 3)), np.array([[0.0, 2.0, -1.0]])], ids=str
)
def test_few_or_equal_weights_come_back_as_they_are(weights: np.ndarray) -> None:
    weights = weights.astype(np.float32)
    np.testing.assert_allclose(unpack(pack(weights, "gobo3")), weights, atol=1e-6)


def test_symbols_that_stand_for_nothing_are_refused() -> None:
    packed = pack(weights_of(64).reshape(8, 8), "gobo3")
    wrong = type(packed)(**{**vars(packed), "scales": packed.scales[:-1]})
    with pytest.raises(ValueError, match="weights are outliers, but there are"):
        unpack(wrong)
