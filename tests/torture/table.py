"""What came of the trials, counted by kind and fault, as a table and as JSON."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, get_args

from tests import sittings
from tests.sittings import Sitting
from tests.torture.damage import DAMAGES
from tests.torture.trials import End, Outcome

ENDS: tuple[End, ...] = get_args(End)
MOST_KEPT = 200
"""Failures that are kept in full."""
TRACEBACK = re.compile(r"\S*/(?=traceback-)")
"""The machine's own folder of a traceback, which says nothing elsewhere."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """A trial, which seed and number repeat: what was done to which kind of command, how it ended and why."""

    seed: int
    trial: int
    kind: str
    end: End
    what: str
    why: str = ""


@dataclass
class Results:
    """The counts of all trials."""

    counts: Counter[tuple[str, str, End]] = field(default_factory=Counter)
    """By kind, fault and end."""
    trials: Counter[End] = field(default_factory=Counter)
    failures: list[Example] = field(default_factory=list)
    examples: dict[tuple[str, str], Example] = field(default_factory=dict)
    """The first trial of every kind and fault."""
    sittings: dict[int, Sitting] = field(default_factory=dict)

    def sit(self, seed: int, workers: int) -> Sitting:
        """Begin or go on with the trials of a seed."""
        self.sittings[seed] = sittings.sit(self.sittings, seed, workers)
        return self.sittings[seed]

    def add(self, seed: int, number: int, kind: str, outcome: Outcome) -> None:
        """Count a trial: each fault that hit it has its end."""
        why = TRACEBACK.sub("", outcome.why)
        example = Example(seed=seed, trial=number, kind=kind, end=outcome.end, what=outcome.what, why=why)
        sitting = self.sittings[seed]
        self.sittings[seed] = replace(sitting, last=max(sitting.last, number))
        self.trials[outcome.end] += 1
        for fault in outcome.hits:
            self.counts[kind, fault, outcome.end] += 1
            self.examples.setdefault((kind, fault), example)
        if outcome.end != "survived" and len(self.failures) < MOST_KEPT:
            self.failures.append(example)

    def join(self, other: "Results") -> None:
        """Add the counts of other seeds."""
        self.sittings = sittings.join(self.sittings, other.sittings)
        self.counts.update(other.counts)
        self.trials.update(other.trials)
        self.failures = [*self.failures, *other.failures][:MOST_KEPT]
        self.examples = other.examples | self.examples

    @property
    def seconds(self) -> float:
        """How long all sittings took."""
        return sum(sitting.seconds for sitting in self.sittings.values())

    @property
    def is_clean(self) -> bool:
        """Whether every trial survived."""
        return set(self.trials) <= {"survived"}

    @property
    def num_kills(self) -> int:
        """Signals and failures of the disk that hit a command."""
        return sum(n for (_, fault, _), n in self.counts.items() if fault not in DAMAGES)

    def rows(self, key: Callable[[str, str], str]) -> Iterator[tuple[str, dict[str, int]]]:
        """The counts by what `key` makes of kind and fault."""
        for name in sorted({key(kind, fault) for kind, fault, _ in self.counts}):
            ends = {
                end: sum(
                    n for (kind, fault, e), n in self.counts.items() if key(kind, fault) == name and e == end
                )
                for end in ENDS
            }
            yield name, {"tries": sum(ends.values())} | ends

    def line(self) -> str:
        """How far it is, in one line."""
        ends = ", ".join(f"{self.trials[end]} {end}" for end in ENDS)
        return f"{self.seconds:.0f} s: {self.num_kills} kills in {self.trials.total()} trials: {ends}"

    def text(self) -> str:
        """Three tables, by kind, by fault and of all, and what failed."""
        lines = [_line("", ("tries", *ENDS))]
        for key in (lambda kind, fault: kind, lambda kind, fault: fault, lambda kind, fault: "all"):
            lines += [_line(name, map(str, row.values())) for name, row in self.rows(key)] + [""]
        lines += [
            f"--seed {f.seed} --trial {f.trial}, {f.kind}, {f.end}: {f.what}\n    {f.why}"
            for f in self.failures
        ]
        return "\n".join([*lines, self.line()])

    def to_json(self) -> dict[str, Any]:
        """All counts, by kind and fault too, with an example of each, and the failures."""
        return {
            "sittings": sittings.to_json(self.sittings),
            "seconds": round(self.seconds, 1),
            "trials": dict(self.trials),
            "kills": self.num_kills,
            "by_kind": dict(self.rows(lambda kind, fault: kind)),
            "by_fault": dict(self.rows(lambda kind, fault: fault)),
            "rows": [self._row(kind, fault) for kind, fault in sorted(self.examples)],
            "failures": [asdict(failure) for failure in self.failures],
        }

    def _row(self, kind: str, fault: str) -> dict[str, Any]:
        row: dict[str, Any] = {"kind": kind, "fault": fault}
        row |= {end: self.counts[kind, fault, end] for end in ENDS}
        return row | {"example": asdict(self.examples[kind, fault])}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Results":
        """Read what `to_json` gave, to count on."""
        rows = values["rows"]
        return cls(
            counts=Counter({(r["kind"], r["fault"], end): r[end] for r in rows for end in ENDS if r[end]}),
            trials=Counter(values["trials"]),
            failures=[Example(**failure) for failure in values["failures"]],
            examples={(row["kind"], row["fault"]): Example(**row["example"]) for row in rows},
            sittings=sittings.from_json(values["sittings"]),
        )


def _line(name: str, cells: Any) -> str:
    return f"{name:<20}" + "".join(f"{cell:>11}" for cell in cells)
