"""The knapsack against trying everything, the budget kept, the table's lines."""

from itertools import product

import numpy as np
import pytest

from bermo.errors import BermoError
from bermo.ship.shrink.search import CostTable, choose_structure, grid

TABLE = CostTable(
    unit="ms",
    fixed=2.0,
    heads=((0, 0.0), (1, 3.0), (2, 3.0), (4, 5.0)),
    neurons=((0, 0.0), (6, 6.0)),
)
KINDS = ("heads", "neurons", "heads", "neurons")


def importances(seed: int) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.exponential(size=n) for n in (4, 6, 4, 6)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("budget", [2.0, 5.5, 9.0, 14.0, 24.0])
def test_the_choice_is_the_best_of_all(seed: int, budget: float) -> None:
    values = importances(seed)
    chosen = choose_structure(values, KINDS, TABLE, budget)
    best = np.inf
    for counts in product(range(5), range(7), range(5), range(7)):
        if TABLE.total(KINDS, counts) <= budget:
            best = min(
                best,
                sum(np.sort(v)[: len(v) - n].sum() for v, n in zip(values, counts, strict=True)),
            )
    assert chosen.cost <= budget
    assert chosen.lost == pytest.approx(best / sum(v.sum() for v in values))
    for units, items in zip(chosen.kept, values, strict=True):
        assert set(units) == set(np.argsort(-items)[: len(units)].tolist()), "the most important stay"


def test_a_flat_of_the_table_is_used_for_free() -> None:
    """Two heads take no longer than one, so nobody stops at one."""
    chosen = choose_structure([np.ones(4), np.ones(6)], ("heads", "neurons"), TABLE, 5.0)
    assert len(chosen.kept[0]) != 1


def test_a_budget_below_the_fixed_cost_is_told() -> None:
    with pytest.raises(
        BermoError, match=r"1 \S+, \S+ times less than now, cannot be met: .* remain, \S+ times less"
    ):
        choose_structure(importances(0), KINDS, TABLE, 1.0)


def test_the_whole_budget_keeps_everything() -> None:
    chosen = choose_structure(importances(0), KINDS, TABLE, TABLE.total(KINDS, (4, 6, 4, 6)))
    assert [len(units) for units in chosen.kept] == [4, 6, 4, 6]
    assert chosen.lost == 0


def test_many_neurons_are_looked_at_in_even_steps() -> None:
    assert grid("neurons", 1536) == list(range(0, 1537, 32))
    assert grid("heads", 12) == list(range(13))
