"""What came of the trials, counted by kind and fault, as a table and as JSON."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, get_args

from tests.torture.damage import DAMAGES
from tests.torture.trials import End, Outcome

ENDS: tuple[End, ...] = get_args(End)
MOST_SHOWN = 200
"""Failures that are kept in full."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A trial that did not survive: its number repeats it."""

    trial: int
    kind: str
    end: End
    what: str
    why: str


@dataclass
class Results:
    """The counts of all trials."""

    counts: Counter[tuple[str, str, End]] = field(default_factory=Counter)
    trials: Counter[End] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def add(self, number: int, kind: str, outcome: Outcome, what: str) -> None:
        """Count a trial: each fault that hit it has its end."""
        self.trials[outcome.end] += 1
        for fault in outcome.hits:
            self.counts[kind, fault, outcome.end] += 1
        if outcome.end != "survived" and len(self.failures) < MOST_SHOWN:
            self.failures.append(
                Failure(trial=number, kind=kind, end=outcome.end, what=what, why=outcome.why)
            )

    @property
    def is_clean(self) -> bool:
        """Whether every trial survived."""
        return set(self.trials) <= {"survived"}

    @property
    def num_kills(self) -> int:
        """Signals and failures of the disk that hit a command."""
        return sum(n for (_, fault, _), n in self.counts.items() if fault not in DAMAGES)

    def rows(self, key: Callable[[str, str], str]) -> Iterator[tuple[str, dict[str, int]]]:
        """The counts by what `key` makes of kind and fault, in the order of their first trial."""
        for name in dict.fromkeys(key(kind, fault) for kind, fault, _ in self.counts):
            ends = {
                end: sum(
                    n for (kind, fault, e), n in self.counts.items() if key(kind, fault) == name and e == end
                )
                for end in ENDS
            }
            yield name, {"tries": sum(ends.values())} | ends

    def text(self) -> str:
        """Two tables, by kind and by fault, and what failed."""
        lines = [_line("", ("tries", *ENDS))]
        for key in (lambda kind, fault: kind, lambda kind, fault: fault, lambda kind, fault: "all"):
            lines += [_line(name, map(str, row.values())) for name, row in sorted(self.rows(key))] + [""]
        lines += [f"trial {f.trial}, {f.kind}, {f.end}: {f.what}\n    {f.why}" for f in self.failures]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """All counts by kind and fault, and the failures."""
        pairs = sorted({(kind, fault) for kind, fault, _ in self.counts})
        rows = [
            {"kind": kind, "fault": fault} | {end: self.counts[kind, fault, end] for end in ENDS}
            for kind, fault in pairs
        ]
        return {
            "trials": sum(self.trials.values()),
            "kills": self.num_kills,
            "rows": [row | {"tries": sum(row[end] for end in ENDS)} for row in rows],
            "failures": [asdict(failure) for failure in self.failures],
        }


def _line(name: str, cells: Any) -> str:
    return f"{name:<20}" + "".join(f"{cell:>11}" for cell in cells)
