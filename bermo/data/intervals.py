"""How far a score on a test file may be off: 95 % intervals of shares and of any other statistic.

    Wilson      (p + z²/2n ± z √(p(1 − p)/n + z²/4n²)) / (1 + z²/n)      for a share p of n rows (Wilson 1927)
    bootstrap   the middle 95 % of the statistic over resamples of the rows (Efron 1979)

Both speak of the rows alone: another seed of the training is another source of chance.
"""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Z = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""
RESAMPLES, FEWEST_RESAMPLES = 1000, 200
MOST_DRAWS = 20_000_000
"""Rows drawn over all resamples: a long file needs fewer of them, and each takes longer."""

Indices = npt.NDArray[np.int64]
Interval = tuple[float, float]


def wilson(right: int, total: int) -> Interval:
    """Return the 95 % interval of the share `right` / `total`."""
    share, z2 = right / total, Z * Z / total
    half = Z * math.sqrt(share * (1 - share) / total + z2 / (4 * total))
    low, high = ((share + z2 / 2 + sign * half) / (1 + z2) for sign in (-1, 1))
    return max(0.0, low), min(1.0, high)


def bootstrap(statistic: Callable[[Indices], float], num_rows: int) -> Interval:
    """Return the 95 % interval of a statistic, which gets the numbers of the rows that were drawn."""
    generator = np.random.default_rng(0)
    resamples = max(FEWEST_RESAMPLES, min(RESAMPLES, MOST_DRAWS // num_rows))
    drawn = [statistic(generator.integers(0, num_rows, num_rows)) for _ in range(resamples)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)
