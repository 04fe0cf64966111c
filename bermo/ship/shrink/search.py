"""Which units stay under a budget: the least importance lost for a cost that may not be exceeded.

    minimise Σ_g lost_g(n_g)   so that   fixed + Σ_g cost_g(n_g) ≤ budget        n_g units of group g stay

Within a group the most important units stay, so lost_g(n) is the sum of all but its n largest importances.
The cost of a group need not be a line: a table of measured times has steps and flats. This is a knapsack with
one choice a group; it is solved exactly, over costs rounded up to a ten-thousandth of the budget, by dynamic
programming.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bermo.encoders.structure import Group, Kind
from bermo.errors import BermoError

BINS = 10_000
Values = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class CostTable:
    """What a model of some shape costs: `heads` and `neurons` are (units kept, cost) of one layer, rising.

    `fixed` is everything that no choice changes: embeddings, norms, the head. `unit` says what is counted.
    """

    unit: str
    fixed: float
    heads: tuple[tuple[int, float], ...]
    neurons: tuple[tuple[int, float], ...]

    def costs(self, kind: Kind, counts: Sequence[int]) -> Values:
        """Return the cost of so many units, between the entries of the table along straight lines."""
        known = self.heads if kind == "heads" else self.neurons
        numbers, costs = zip(*known, strict=True)
        return np.interp(np.asarray(counts, float), numbers, costs)

    def total(self, kinds: Sequence[Kind], counts: Sequence[int]) -> float:
        """Return the cost of a model whose groups have so many units."""
        pairs = zip(kinds, counts, strict=True)
        return self.fixed + sum(float(self.costs(kind, [count])[0]) for kind, count in pairs)


@dataclass(frozen=True, kw_only=True)
class KeptUnits:
    """The units of each group that stay, their cost together, and the share of importance that is lost."""

    kept: tuple[tuple[int, ...], ...]
    cost: float
    lost: float


def weight_table(groups: Sequence[Group]) -> CostTable:
    """Return the table in which a unit costs its weights; nothing is fixed, so a budget is a density."""
    tables: dict[Kind, tuple[tuple[int, float], ...]] = {}
    kinds: tuple[Kind, Kind] = ("heads", "neurons")
    for kind in kinds:
        of_kind = [group for group in groups if group.kind == kind]
        most = max((group.count for group in of_kind), default=1)
        cost = of_kind[0].cost if of_kind else 0
        tables[kind] = ((0, 0.0), (most, float(most * cost)))
    return CostTable(unit="weights", fixed=0.0, heads=tables["heads"], neurons=tables["neurons"])


def grid(kind: Kind, count: int) -> list[int]:
    """Return the numbers of units to consider: every number of heads, 48 even steps of many neurons."""
    step = 1 if kind == "heads" else max(1, count // 48)
    return sorted({*range(0, count, step), count})


def choose_structure(
    importance: Sequence[Values], kinds: Sequence[Kind], table: CostTable, budget: float
) -> KeptUnits:
    """Return the units that stay: `importance` holds one number a unit for each group of a kind."""
    options = [grid(kind, len(values)) for kind, values in zip(kinds, importance, strict=True)]
    costs = [table.costs(kind, counts) for kind, counts in zip(kinds, options, strict=True)]
    losses = [_losses(values, counts) for values, counts in zip(importance, options, strict=True)]
    least = table.fixed + sum(float(cost.min()) for cost in costs)
    if budget < least:
        whole = table.total(kinds, [len(values) for values in importance])
        raise BermoError(
            f"A budget of {budget:.4g} {table.unit}, {whole / budget:.3g} times less than now, cannot be met:"
            f" with no head and no neuron left {least:.4g} {table.unit} remain, {whole / least:.3g} times"
            " less. Ask for less than that."
        )
    picks = _knapsack(costs, losses, budget - table.fixed)
    counts = [option[pick] for option, pick in zip(options, picks, strict=True)]
    kept = tuple(_top(values, n) for values, n in zip(importance, counts, strict=True))
    whole = sum(float(values.sum()) for values in importance)
    lost = sum(float(loss[pick]) for loss, pick in zip(losses, picks, strict=True))
    return KeptUnits(kept=kept, cost=table.total(kinds, counts), lost=lost / max(whole, 1e-300))


def _losses(values: Values, counts: Sequence[int]) -> Values:
    rising = np.concatenate([[0.0], np.cumsum(np.sort(values))])
    return rising[len(values) - np.asarray(counts)]


def _top(values: Values, count: int) -> tuple[int, ...]:
    order = np.argsort(-values, kind="stable")[:count]
    return tuple(sorted(int(unit) for unit in order))


def _knapsack(costs: Sequence[Values], losses: Sequence[Values], room: float) -> list[int]:
    """Return the choice of each group: the least lost of those that fit the room."""
    most = sum(float(cost.max()) for cost in costs)
    if most <= room:
        return [int(loss.argmin()) for loss in losses]
    scale = BINS / max(room, 1e-9 * most)
    steps = [np.ceil(cost * scale).astype(np.int64) for cost in costs]
    # Rounding up takes at most one bin from each group; with these back, nothing that fits is left out.
    bins = BINS + len(costs)
    best = np.zeros(bins + 1)
    picks = np.zeros((len(costs), bins + 1), dtype=np.int32)
    for index, (step, loss) in enumerate(zip(steps, losses, strict=True)):
        new = np.full(bins + 1, np.inf)
        for option, (need, lost) in enumerate(zip(step.tolist(), loss.tolist(), strict=True)):
            losses_with = np.full(bins + 1, np.inf)
            losses_with[need:] = best[: max(bins + 1 - need, 0)] + lost
            better = losses_with < new
            new[better] = losses_with[better]
            picks[index, better] = option
        best = new
    # The most room first: what it loses is the least.
    for bin in range(bins, -1, -1):
        chosen = _trace(picks, steps, bin)
        if sum(float(cost[pick]) for cost, pick in zip(costs, chosen, strict=True)) <= room + 1e-9:
            return chosen
    raise AssertionError("with nothing left, every budget over the fixed cost is met")


def _trace(picks: npt.NDArray[np.int32], steps: Sequence[npt.NDArray[np.int64]], bin: int) -> list[int]:
    """Walk back from a bin to the choice of each group."""
    chosen = []
    for index in reversed(range(len(steps))):
        option = int(picks[index, bin])
        chosen.append(option)
        bin -= int(steps[index][option])
    return chosen[::-1]
