"""Trials of a reader: a seed of its corpus with one file changed, in a new folder, under watch.

A trial is known by the reader, the seed of the session and its number: the same three give the same input.
"""

import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from tests import sittings
from tests.fuzz.guard import End, Outcome, guarded
from tests.fuzz.mutate import mutate
from tests.fuzz.readers import READERS
from tests.sittings import Sitting

CORPUS = Path(__file__).parent / "corpus"
ENDS: tuple[End, ...] = ("refused", "accepted", "fault")
Input = Mapping[str, bytes]
"""The files of a folder by their names in it."""


@dataclass(frozen=True, order=True)
class Fault:
    """What should not have been, where, and how to make the trial again."""

    reader: str
    reason: str
    seed: int
    number: int


@dataclass
class Results:
    """Counts of each reader, and its faults, one for each reason."""

    ends: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: dict[tuple[str, str], Fault] = field(default_factory=dict)
    sittings: dict[int, Sitting] = field(default_factory=dict)

    def add_(self, reader: str, seed: int, number: int, outcome: Outcome) -> None:
        """Count one trial."""
        self.ends[reader, outcome.end] += 1
        if outcome.end == "fault":
            fault = Fault(reader, outcome.reason, seed, number)
            self.faults.setdefault((reader, outcome.reason.partition(":")[0]), fault)

    def join_(self, other: "Results") -> None:
        """Add the counts and faults of another process, or of other seeds."""
        self.sittings = sittings.join(self.sittings, other.sittings)
        self.ends.update(other.ends)
        for key, fault in other.faults.items():
            self.faults.setdefault(key, fault)

    @property
    def num_inputs(self) -> int:
        return self.ends.total()

    def rows(self) -> list[dict[str, Any]]:
        """The table: what became of the inputs of each reader."""
        names = [name for name in READERS if any(name == reader for reader, _ in self.ends)]
        counts = {name: {end: self.ends[name, end] for end in ENDS} for name in names}
        return [{"reader": name, "inputs": sum(count.values())} | count for name, count in counts.items()]

    def to_json(self) -> dict[str, Any]:
        """The table, and each kind of fault with its first trial."""
        return {
            "sittings": sittings.to_json(self.sittings),
            "inputs": self.num_inputs,
            "readers": self.rows(),
            "faults": list(map(asdict, self._faults())),
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Results":
        """Read what `to_json` gave, to count on."""
        faults = [Fault(**fault) for fault in values["faults"]]
        return cls(
            ends=Counter(
                {(row["reader"], end): row[end] for row in values["readers"] for end in ENDS if row[end]}
            ),
            faults={(fault.reader, fault.reason.partition(":")[0]): fault for fault in faults},
            sittings=sittings.from_json(values["sittings"]),
        )

    def _faults(self) -> list[Fault]:
        return sorted(self.faults.values())

    def text(self) -> str:
        """The table and the faults for the terminal."""
        lines = [f"{'reader':<12}{'inputs':>10}{'refused':>10}{'accepted':>10}{'faults':>8}"]
        lines += [
            f"{row['reader']:<12}{row['inputs']:>10,}{row['refused']:>10,}{row['accepted']:>10,}{row['fault']:>8,}"
            for row in self.rows()
        ]
        lines += [
            f"--only {f.reader} --seed {f.seed} --trial {f.number}: {f.reason!r}" for f in self._faults()
        ]
        return "\n".join(lines)


@cache
def seeds_of(reader: str) -> tuple[Input, ...]:
    """The valid inputs of a reader: its folders in the corpus, and its files, each a folder of its own."""
    items = sorted((CORPUS / reader).iterdir())
    return tuple(_files(item) if item.is_dir() else {item.name: item.read_bytes()} for item in items)


def _files(folder: Path) -> Input:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def input_of(reader: str, seed: int, number: int) -> Input:
    """Return the changed files of a trial."""
    random = Random(f"{seed} {reader} {number}")
    seeds = seeds_of(reader)
    chosen = dict(random.choice(seeds))
    name = random.choice(list(chosen))
    others = [data for files in seeds for data in files.values()]
    chosen[name] = mutate(chosen[name], name, others, random)
    return chosen


def try_input(reader: str, files: Input, folder: Path) -> Outcome:
    """Give an input to its reader, in a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    outcome = guarded(lambda: READERS[reader].read(folder))
    left = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    if left != files.keys():
        return Outcome("fault", f"the folder holds other files now: {left ^ files.keys()}")
    return outcome
