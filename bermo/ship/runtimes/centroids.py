"""GOBO (Zadeh et al. 2020): nearly all weights of a matrix as one of 2^bits numbers, outliers as they are.

    outlier     log N(w; μ, σ) < −4, μ and σ the mean and deviation of the matrix; about one in a thousand
    centroids   start as the means of equally many weights each; then weights go to the nearest centroid and
                centroids to the mean of their weights, until Σ |w − c| no longer falls

Nothing is trained. Three bits for matrices and four for embeddings are the paper's.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
LEAST_LOG_DENSITY = -4.0
MOST_ROUNDS = 100


@dataclass(frozen=True, kw_only=True)
class Coded:
    """Weights as symbols: the index of a centroid, or their number for an outlier."""

    centroids: Floats
    symbols: npt.NDArray[np.uint8]
    outliers: Floats
    """In the order of the weights."""

    def values(self) -> Floats:
        """Return the weights that the symbols stand for."""
        is_outlier = self.symbols == len(self.centroids)
        if int(is_outlier.sum()) != len(self.outliers):
            raise ValueError(
                f"{int(is_outlier.sum())} weights are outliers, but there are {len(self.outliers)}"
            )
        values = np.append(self.centroids, np.float32(0))[self.symbols].astype(np.float32)
        values[is_outlier] = self.outliers
        return values


def code(weights: Floats, bits: int) -> Coded:
    """Code a flat array of weights by 2^bits centroids and outliers."""
    is_outlier = find_outliers(weights)
    inner = weights[~is_outlier]
    centroids = fit_centroids(inner, 1 << bits)
    symbols = np.full(len(weights), len(centroids), dtype=np.uint8)
    symbols[~is_outlier] = nearest(inner, centroids)
    return Coded(centroids=centroids, symbols=symbols, outliers=weights[is_outlier])


def find_outliers(weights: Floats) -> npt.NDArray[np.bool_]:
    """Tell which weights are unlikely under a normal law of the matrix's mean and deviation."""
    if len(weights) == 0 or (deviation := float(weights.std())) == 0:
        return np.zeros(len(weights), dtype=bool)
    scores = (weights - weights.mean()) / deviation
    logs = -0.5 * scores**2 - math.log(deviation * math.sqrt(2 * math.pi))
    return np.asarray(logs < LEAST_LOG_DENSITY)


def fit_centroids(weights: Floats, count: int) -> Floats:
    """Return rising centroids: those of the last round in which the sum of distances fell."""
    if len(weights) == 0:
        return np.zeros(count, dtype=np.float32)
    parts = np.array_split(np.sort(weights), count)
    # Fewer weights than centroids leave some parts empty.
    centroids = np.array([part.mean() if len(part) else weights.max() for part in parts], dtype=np.float32)
    best, least = centroids, math.inf
    for _ in range(MOST_ROUNDS):
        symbols = nearest(weights, centroids)
        distance = float(np.abs(weights - centroids[symbols]).sum(dtype=np.float64))
        if distance >= least:
            break
        best, least = centroids, distance
        numbers = np.bincount(symbols, minlength=count)
        sums = np.bincount(symbols, weights=weights, minlength=count)
        centroids = np.where(numbers, sums / np.maximum(numbers, 1), centroids).astype(np.float32)
    return best


def nearest(weights: Floats, centroids: Floats) -> npt.NDArray[np.uint8]:
    """Return the index of the centroid nearest to each weight; centroids rise."""
    middles = (centroids[1:] + centroids[:-1]) / 2
    return np.searchsorted(middles, weights).astype(np.uint8)
