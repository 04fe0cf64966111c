"""What counts of seeds allow to say: an exact interval of a share, and whether two counts differ by chance.

interval of a share    all shares p for which neither P(k or more) nor P(k or fewer) of n is under 2.5 %
                       (Clopper and Pearson 1934)
difference by chance   P(as many dead or more in the first group), if the dead were drawn from both
                       (Fisher's exact test, one-sided)
"""

from collections.abc import Callable
from math import comb


def share_interval(count: int, total: int) -> tuple[float, float]:
    """Return the 95 % interval of the share of which `count` of `total` were seen."""
    low = 0.0 if count == 0 else _root(lambda share: _at_least(count, total, share) - 0.025)
    high = 1.0 if count == total else _root(lambda share: 0.025 - _at_most(count, total, share))
    return low, high


def _at_most(count: int, total: int, share: float) -> float:
    return sum(comb(total, k) * share**k * (1 - share) ** (total - k) for k in range(count + 1))


def _at_least(count: int, total: int, share: float) -> float:
    return 1 - _at_most(count - 1, total, share)


def _root(rising: Callable[[float], float]) -> float:
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low + high) / 2


def chance_of_more(dead: int, total: int, other_dead: int, other_total: int) -> float:
    """Return how likely so many dead or more in the first group are where both groups die alike."""
    all_dead, both = dead + other_dead, total + other_total
    most = min(all_dead, total)
    ways = sum(comb(total, k) * comb(other_total, all_dead - k) for k in range(dead, most + 1))
    return ways / comb(both, all_dead)


def counted(alive: int, total: int, word: str) -> str:
    """Write how many of all seeds live, with the interval of the share in percent."""
    low, high = share_interval(alive, total)
    return f"{alive} of {total} {word} ({100 * low:.0f} … {100 * high:.0f} %)"
