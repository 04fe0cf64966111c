"""What a user wants of the small model: so short a call, so many times the throughput, or so few bytes.

5ms    4 (× the rows a second of the dense model in torch, fp32)    10MB
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bermo.errors import BermoError
from bermo.ship.runtimes.forms import FormName, find_form

if TYPE_CHECKING:
    from bermo.ship.bench.measured import Bench, Measured

What = Literal["latency", "speedup", "size"]
_LATENCY = re.compile(r"([\d.]+)\s*(ms|s|us|µs)")
_SIZE = re.compile(r"([\d.]+)\s*(kB|KB|MB|GB)")
_MILLISECONDS = {"us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3}
_MEGABYTES = {"kb": 1e-3, "mb": 1.0, "gb": 1e3}
NEAR = 1.5
"""Forms of the dense model within this factor of the best may be the best for a smaller one."""
MOST_FORMS = 3
FEW_ROWS = 2
"""Rows that do not decide between two forms of one model: their answers differ in the last digits."""
FASTER = 1.05
"""So many times the throughput is no chance of a bench."""


@dataclass(frozen=True, kw_only=True)
class Goal:
    """A bound on one measure: milliseconds, times, or megabytes."""

    what: What
    value: float

    def of(self, result: "Bench", row: "Measured") -> float:
        """Return the measure of a candidate."""
        match self.what:
            case "latency":
                return row.at(*result.latency_shape).p50
            case "speedup":
                return result.speedup(row)
            case "size":
                return row.megabytes

    def excess(self, result: "Bench", row: "Measured") -> float:
        """How many times a candidate misses the goal; 1 or less means that it is met."""
        value = self.of(result, row)
        return self.value / value if self.what == "speedup" else value / self.value

    def text(self, value: float | None = None) -> str:
        """Say a value as the user would."""
        number = self.value if value is None else value
        match self.what:
            case "latency":
                return f"{number:.3g} ms a call"
            case "speedup":
                return f"{number:.3g} times the throughput"
            case "size":
                return f"{number:.3g} MB"


def read_goal(latency: str | None, speedup: str | None, size: str | None) -> Goal:
    """Read the one goal that was given: 5ms, 4 or 10MB."""
    given = {"latency": latency, "speedup": speedup, "size": size}
    goals = [(name, text) for name, text in given.items() if text is not None]
    if len(goals) != 1:
        raise BermoError(
            f"{len(goals) or 'No'} goals were given. Say one: --latency 5ms, --speedup 4 or --size 10MB."
        )
    name, text = goals[0]
    value = _READERS[name](text)
    if value is None or not math.isfinite(value) or value <= 0:
        example = {"latency": "5ms", "speedup": "4", "size": "10MB"}[name]
        raise BermoError(f'--{name} "{text}" cannot be read. Write it like this: --{name} {example}.')
    what: What = "latency" if name == "latency" else "speedup" if name == "speedup" else "size"
    return Goal(what=what, value=value)


def leading_forms(goal: Goal, dense: "Bench") -> tuple[FormName, ...]:
    """Return the forms of the dense model that come near the best for a goal, the best first."""
    ranked = sorted(dense.rows[1:], key=lambda row: goal.excess(dense, row))
    near = [r for r in ranked if goal.excess(dense, r) <= NEAR * goal.excess(dense, ranked[0])]
    return tuple(find_form(row.name.rpartition(" ")[2]).name for row in near[:MOST_FORMS])


def pick(goal: Goal, result: "Bench") -> tuple["Measured", bool]:
    """Return the best score among those that meet the goal, or a faster form of that model which is as good;
    else the nearest; and whether the goal is met.
    """
    rows = result.rows[1:] or result.rows  # the first is what is to be made small
    meeting = [row for row in rows if goal.excess(result, row) <= 1]
    if meeting:
        best = max(meeting, key=lambda row: (row.score or 0, -goal.excess(result, row)))
        fastest = max(_as_good(best, meeting, result), key=result.speedup)
        return fastest if result.speedup(fastest) > FASTER * result.speedup(best) else best, True
    return min(rows, key=lambda row: goal.excess(result, row)), False


def _as_good(best: "Measured", rows: Sequence["Measured"], result: "Bench") -> list["Measured"]:
    """Return the best one and the forms of its model that score as well but for a row or two."""
    if best.score is None or not result.num_scored:
        return [best]
    least = best.score - FEW_ROWS * 100 / result.num_scored - 1e-9
    model = best.name.rpartition(" ")[0]
    return [row for row in rows if row.name.rpartition(" ")[0] == model and (row.score or 0) >= least]


def passed_over(goal: Goal, result: "Bench", picked: "Measured") -> "Measured | None":
    """Return the slower form of the same model that scores a little more and meets the goal too, if any."""
    model, score = picked.name.rpartition(" ")[0], picked.score or 0
    forms = (row for row in result.rows[1:] if row.name.rpartition(" ")[0] == model)
    more = [row for row in forms if (row.score or 0) > score and goal.excess(result, row) <= 1]
    return max(more, key=lambda row: row.score or 0) if more else None


def _latency(text: str) -> float | None:
    match = _LATENCY.fullmatch(text.strip())
    return None if match is None else _number(match[1], _MILLISECONDS[match[2]])


def _size(text: str) -> float | None:
    match = _SIZE.fullmatch(text.strip())
    return None if match is None else _number(match[1], _MEGABYTES[match[2].lower()])


def _speedup(text: str) -> float | None:
    return _number(text.strip().rstrip("x×"), 1.0)


def _number(text: str, unit: float) -> float | None:
    try:
        return float(text) * unit
    except ValueError:
        return None


_READERS = {"latency": _latency, "speedup": _speedup, "size": _size}
