"""How far a score on a test file may be off: 95 % intervals of shares and of any other statistic.

    Wilson      (p + z²/2n ± z √(p(1 − p)/n + z²/4n²)) / (1 + z²/n)      for a share p of n rows (Wilson 1927)
    bootstrap   the middle 95 % of the statistic over resamples of the rows (Efron 1979)
    sign test   of b + c rows that became wrong or right, 2 · P(at most min(b, c) one way)    (McNemar 1947)

All speak of the rows alone: another seed of the training is another source of chance.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Z = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""
LEVEL = 0.05
"""What is said to be seen has a p below."""
RESAMPLES, FEWEST_RESAMPLES = 1000, 200
MOST_DRAWS = 20_000_000
"""Rows drawn over all resamples: a long file needs fewer of them, and each takes longer."""

Indices = npt.NDArray[np.int64]
Interval = tuple[float, float]


def wilson(right: float, total: float) -> Interval:
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


def draws_of_groups(num_groups: int) -> Indices:
    """Return how often each group is drawn in each resample, (resamples, groups).

    Rows that belong together, as the words of a sentence do, are drawn together.
    """
    generator = np.random.default_rng(0)
    return generator.multinomial(num_groups, np.full(num_groups, 1 / num_groups), size=RESAMPLES)


def share_ends(drawn: npt.NDArray[np.float64], share: float, num_groups: int) -> Interval:
    """Return the interval of a share over resamples of groups.

    Where all rows are right, or all wrong, no resample differs: then it is Wilson's, of a row a group.
    """
    if share in (0.0, 1.0):
        return wilson(share * num_groups, num_groups)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)


def sign_test(before: Sequence[bool], after: Sequence[bool]) -> float:
    """Return the two-sided p of as many rows becoming wrong or right, if either were as likely."""
    lost = sum(a and not b for a, b in zip(before, after, strict=True))
    won = sum(b and not a for a, b in zip(before, after, strict=True))
    return two_sided(lost, won)


def two_sided(one: int, other: int) -> float:
    """Return the p of so many rows one way and so many the other, if either were as likely."""
    tail = sum(math.comb(one + other, k) for k in range(min(one, other) + 1))
    return min(1.0, 2 * tail / 2 ** (one + other))
