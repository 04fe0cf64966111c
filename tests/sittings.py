"""Long tests that are run in several sittings, on several machines, and counted in one file.

A sitting is known by its seed: with the same one it goes on after its last trial, so that none is counted
twice; another seed makes other trials, which are added.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from bermo.machine import processor


@dataclass(frozen=True, kw_only=True)
class Sitting:
    """Where the trials of a seed were made, for how long, and the highest number that was given out."""

    seed: int
    workers: int
    processor: str
    seconds: float = 0.0
    last: int = 0


Sittings = Mapping[int, Sitting]
"""By their seeds."""


def sit(sittings: Sittings, seed: int, workers: int) -> Sitting:
    """The sitting of a seed on this machine, gone on with where there is one."""
    new = Sitting(seed=seed, workers=workers, processor=processor().name)
    known = sittings.get(seed, new)
    return replace(new, seconds=known.seconds, last=known.last)


def join(ours: Sittings, theirs: Sittings) -> dict[int, Sitting]:
    """Both; a seed of both would count the same trials twice."""
    same = sorted(ours.keys() & theirs.keys())
    if same:
        raise SystemExit(f"Both files hold the trials of --seed {same[0]}. Add files of other seeds.")
    return {**ours, **theirs}


def to_json(sittings: Sittings) -> list[dict[str, Any]]:
    """The sittings in the order of their seeds."""
    return [asdict(sittings[seed]) for seed in sorted(sittings)]


def from_json(values: Iterable[dict[str, Any]]) -> dict[int, Sitting]:
    """Read what `to_json` gave."""
    return {value["seed"]: Sitting(**value) for value in values}
