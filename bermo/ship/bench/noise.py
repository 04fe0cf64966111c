"""Whether the machine was quiet: rounds of a candidate that differ too much are measured again, then named.

    noise = slowest / fastest round, of the median milliseconds of each round

A round is measured again for all candidates of its shape, so that ratios stay within the same minutes.
"""

import statistics
from collections.abc import Sequence

from bermo.ship.bench.measured import Bench, Shape

NOISY = 1.5
"""From this noise on a number is not to be trusted; a quiet machine stays under 1.1."""


def noise(rounds: Sequence[float]) -> float:
    """How many times longer the slowest round took than the fastest."""
    return max(rounds) / min(rounds)


def worst_round(medians: Sequence[Sequence[float]]) -> int | None:
    """Return the round that differs most from its candidate's median, or None where no candidate is noisy.

    `medians` has the median time of each round for each candidate.
    """
    noisy = [rounds for rounds in medians if noise(rounds) > NOISY]
    if not noisy:
        return None
    count = len(noisy[0])
    return max(range(count), key=lambda number: max(_distance(rounds, number) for rounds in noisy))


def _distance(rounds: Sequence[float], number: int) -> float:
    middle = statistics.median(rounds)
    return max(rounds[number] / middle, middle / rounds[number])


def noise_sentence(result: Bench) -> str | None:
    """Say which numbers are not to be trusted, or return None where the machine was quiet enough."""
    parts = [
        _shape_sentence(result, shape, columns)
        for shape, columns in (
            (result.latency_shape, "ms, faster"),
            (result.throughput_shape, "rows/s, more"),
        )
    ]
    said = [part for part in dict.fromkeys(parts) if part is not None]
    if not said:
        return None
    again = f" though {result.repeats} rounds were measured again" if result.repeats else ""
    return (
        f"The machine was too noisy{again}. Do not trust {'; nor '.join(said)}. Close what else runs, or pass"
        " more --rounds."
    )


def _shape_sentence(result: Bench, shape: Shape, columns: str) -> str | None:
    worst = {row.name: noise(row.at(*shape).rounds) for row in result.rows}
    noisy = [name for name, value in worst.items() if value > NOISY]
    if not noisy:
        return None
    # Every ratio is against the first.
    names = "any" if result.rows[0].name in noisy else ", ".join(noisy)
    return f"{columns} of {names} (rounds differ by up to {max(worst.values()):.1f} times)"
