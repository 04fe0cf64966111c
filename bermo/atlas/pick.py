"""The wish that picks one model of an atlas: bounds that it has to keep, and what it has to be best at.

WISH  = [BOUND,]… AIM
BOUND = 98 % of the score | 10 MB | 5 ms | 4 times the throughput
AIM   = smallest latency | smallest size | highest throughput | best score
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from bermo.atlas.rows import BASELINE_GROUP, Atlas, Row
from bermo.errors import BermoError

Aim = Literal["smallest latency", "smallest size", "highest throughput", "best score"]
AIMS: dict[Aim, Callable[[Row], float]] = {
    "smallest latency": lambda row: -row.milliseconds,
    "smallest size": lambda row: -row.megabytes,
    "highest throughput": lambda row: row.speedup,
    "best score": lambda row: row.mean,
}
"""What is to be large."""
GRAMMAR = (
    'Write bounds and one aim, with commas, such as "98 % of the score, smallest latency". Bounds: N % of the'
    " score, N MB, N ms, N times the throughput. Aims: " + ", ".join(AIMS) + "."
)
_BOUND = re.compile(r"(\d+(?:\.\d+)?)\s*(% of the score|%|mb|ms|(?:times|x|×)(?: the)? throughput)")
ALMOST = 1e-9


@dataclass(frozen=True, kw_only=True)
class Bound:
    """One thing that must hold."""

    what: Literal["score", "size", "latency", "throughput"]
    value: float

    def holds(self, row: Row) -> bool:
        """Tell whether a row keeps it."""
        match self.what:
            case "score":
                return row.kept >= self.value - ALMOST
            case "size":
                return row.megabytes <= self.value
            case "latency":
                return row.milliseconds <= self.value
            case "throughput":
                return row.speedup >= self.value


@dataclass(frozen=True, kw_only=True)
class Pick:
    """The bounds, and what is best among those that keep them."""

    bounds: tuple[Bound, ...]
    aim: Aim

    def keeps(self, row: Row) -> bool:
        """Tell whether a row was measured whole and keeps all bounds."""
        return row.is_timed and all(bound.holds(row) for bound in self.bounds)

    def best(self, rows: Sequence[Row]) -> Row | None:
        """Return the best row among those that keep all bounds, if one does."""
        return max(filter(self.keeps, rows), key=AIMS[self.aim], default=None)


def read_pick(text: str) -> Pick:
    """Read a wish; what cannot be read is an error that says the grammar."""
    bounds, aims = [], list[Aim]()
    for part in text.lower().split(","):
        words = " ".join(part.split())
        aim = next((aim for aim in AIMS if aim == words), None)
        bound = _read_bound(words)
        if aim is not None:
            aims.append(aim)
        elif bound is not None:
            bounds.append(bound)
        else:
            raise BermoError(f'--pick: "{part.strip()}" cannot be read. {GRAMMAR}')
    if len(aims) != 1:
        raise BermoError(f'--pick "{text}" has {len(aims) or "no"} aims, and one is needed. {GRAMMAR}')
    return Pick(bounds=tuple(bounds), aim=aims[0])


def _read_bound(words: str) -> Bound | None:
    found = _BOUND.fullmatch(words)
    if found is None:
        return None
    value, unit = float(found[1]), found[2]
    if unit.startswith("%"):
        return Bound(what="score", value=value)
    if unit == "mb":
        return Bound(what="size", value=value)
    return Bound(what="latency" if unit == "ms" else "throughput", value=value)


@dataclass(frozen=True, kw_only=True)
class Picked:
    """The row that was picked, if one keeps all bounds, and the sentence that says so."""

    row: Row | None
    sentence: str


def pick_from(wish: Pick, atlas: Atlas) -> Picked:
    """Pick the best model; a baseline, which bermo cannot ship, is only named where it keeps all bounds."""
    models = [row for row in atlas.rows if row.group != BASELINE_GROUP]
    simple = [row.name for row in atlas.rows if row.group == BASELINE_GROUP and wish.keeps(row)]
    note = f" {' and '.join(simple)} would do too, without an encoder." if simple else ""
    row = wish.best(models)
    if row is None:
        return Picked(row=None, sentence=f"No model keeps all that --pick asks for.{note}")
    facts = (
        f"{row.kept:.1f} % of the score, {row.milliseconds:.3g} ms a call, {row.speedup:.3g} times the"
        f" throughput, {row.megabytes:.3g} MB"
    )
    return Picked(row=row, sentence=f"Picked for the {wish.aim}: {row.name} ({facts}).{note}")
