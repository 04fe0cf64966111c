"""Which methods an atlas compares, how long it may take, and what is wanted of the one that is picked."""

import re
from dataclasses import dataclass
from typing import Literal

from bermo.atlas.pick import read_pick
from bermo.errors import BermoError
from bermo.fields import Rules, option
from bermo.ship.bench.spec import MOST_ROWS, MOST_THREADS, BenchSpec

SECONDS = {"s": 1, "min": 60, "h": 3600}
_BUDGET = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|h)")
BENCH = "the bench"


@dataclass(frozen=True, kw_only=True)
class AtlasSpec:
    """What the atlas compares, and how."""

    methods: tuple[str, ...] = option(
        (), "which methods, or all", metavar="NAME,NAME", shown="the usual ones"
    )
    budget: str | None = option(
        None, "no method begins that would not end in this time (2h, 30min)", metavar="TIME"
    )
    pick: str | None = option(
        None,
        'which model is taken in the end: "98 % of the score, smallest latency"',
        metavar="WISH",
    )
    only: Literal["train", "export"] | None = option(
        None, "stop after the trainings, or before the bench; later the same command without it goes on"
    )
    unlabelled: str | None = option(
        None,
        "texts without labels, answered by the dense model, that taught models learn from too: one a line, or"
        " a table",
        metavar="FILE",
    )
    tiny: bool = option(False, "a small form that ends in minutes: the box and generated sentences")
    batches: tuple[int, ...] = option((1, 32), "rows a call", "batch", title=BENCH, least=1, most=MOST_ROWS)
    lengths: tuple[int, ...] = option((32, 128), "tokens a row", title=BENCH, least=1)
    rounds: int = option(3, "turns each takes at each shape", title=BENCH, least=1)
    threads: int | None = option(
        None, "threads of each model", shown="all cores", title=BENCH, least=1, most=MOST_THREADS
    )

    @property
    def seconds(self) -> float | None:
        """The budget in seconds."""
        return None if self.budget is None else read_budget(self.budget)

    @property
    def bench(self) -> BenchSpec:
        """The bench of every method beside the dense model."""
        return BenchSpec(batches=self.batches, lengths=self.lengths, rounds=self.rounds)

    def rules(self) -> Rules:
        _ = self.seconds
        if self.pick is not None:
            read_pick(self.pick)
        return [
            (
                self.pick is None or self.only is None,
                "--only leaves nothing to pick from. Leave --only or --pick out.",
            )
        ]


def read_budget(text: str) -> float:
    """Return the seconds of a time such as 2h, 30min or 90s."""
    found = _BUDGET.fullmatch(text.strip())
    if found is None or float(found[1]) <= 0:
        raise BermoError(f'--budget "{text}" cannot be read. Write a time such as 2h, 30min or 90s.')
    return float(found[1]) * SECONDS[found[2]]
