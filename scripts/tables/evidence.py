"""What was measured for a claim: numbers with their interval, their count and the place they come from.

A source is a file of results/ and an expression over its arms; tests/docs/test_verdicts.py computes every
printed number again from it:

    gpu.json: A              the mean of an arm's last scores over the seeds that live
    gpu.json: A − B          the mean difference, paired by the seeds that live in both
    probing-gpu.json: CASE   mix − plain, the mean of four semantic tasks, paired by seed
    probing-gpu.json: CASE/ARM           the mean of an arm's last scores over the seeds that did not diverge
    grid.json: ENCODER/TASK/METHOD/mix   the mean of a cell of the grid
    grid.json: CELL − CELL               the difference of two means, with Welch's interval
"""

from dataclasses import dataclass

from bermo.methods.probing.paired import Paired
from scripts.tables.grid import TASKS, Cell, Grid, distance, grid
from scripts.tables.numbers import (
    RESULTS,
    difference,
    gap,
    last_scores,
    num_seeds,
    read,
    table,
    with_interval,
)
from scripts.tables.scores import semantic_gain


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One measured number of a claim."""

    encoder: str
    what: str
    value: str
    n: str
    source: str
    interval: tuple[float, float] | None = None
    dead: int = 0

    @property
    def row(self) -> list[str]:
        return [self.encoder, self.what, self.value, self.n, f"`{self.source}`"]


HEAD = ["encoder", "what", "mean (95 % interval)", "n", "from"]


def evidence_table(rows: tuple[Evidence, ...]) -> str:
    """Write a claim's numbers."""
    return table(HEAD, (one.row for one in rows))


def arm(what: str, name: str) -> Evidence:
    """An arm of gpu.json: the mean of its seeds that live, and how many do."""
    alive = list(last_scores(name).values())
    return Evidence(
        encoder="gte-small",
        what=what,
        value=with_interval(alive) if alive else "–",
        n=f"{len(alive)} of {num_seeds(name)} live",
        source=f"gpu.json: {name}",
        dead=num_seeds(name) - len(alive),
    )


def paired_arms(what: str, one: str, other: str) -> Evidence | None:
    """The difference of two arms of gpu.json; None where no seed lives in both."""
    if not last_scores(one).keys() & last_scores(other).keys():
        return None
    known = difference(one, other)
    return Evidence(
        encoder="gte-small",
        what=what,
        value=gap(known),
        n=f"{known.count} pairs",
        source=f"gpu.json: {one} − {other}",
        interval=known.interval,
    )


def semantic(encoder: str, case: str) -> Evidence:
    """Mix − plain over four semantic tasks."""
    gain = semantic_gain(case)[2]
    return Evidence(
        encoder=encoder,
        what="mix − plain, mean of four tasks",
        value=gap(gain),
        n=f"{gain.count} pairs",
        source=f"probing-gpu.json: {case}",
        interval=gain.interval,
    )


def fine_tuned(encoder: str, what: str, case: str, name: str) -> Evidence:
    """An arm of fine-tuned probing: the mean of the seeds that did not diverge, and how many those are."""
    runs = read("probing-gpu.json")["finetuned"][case][name]
    scores = [run["last_score"] for run in runs if run["diverged"] is None]
    return Evidence(
        encoder=encoder,
        what=what,
        value=with_interval(scores),
        n=f"{len(scores)} of {len(runs)} learn",
        source=f"probing-gpu.json: {case}/{name}",
        dead=len(runs) - len(scores),
    )


def measured_grid() -> Grid | None:
    """The grid of further encoders, where it was measured."""
    return grid(read("grid.json")) if (RESULTS / "grid.json").exists() else None


def of_grid(known: Grid | None, task: str, methods: tuple[str, ...]) -> list[Evidence]:
    """Every cell of some methods on a task, for the encoders of the grid."""
    places = [place for place in known.places if place.task == task] if known else []
    return [
        _cell(place.encoder, task, cell)
        for place in places
        for cell in place.pruned
        if cell.arm.method in methods
    ]


def taught_gaps(known: Grid | None) -> list[Evidence]:
    """Mix − plain of every taught arm of the grid that has both."""
    gaps = []
    for place in known.places if known else ():
        taught = {(c.arm.method, c.arm.mix): c for c in place.pruned if c.arm.is_taught and len(c.alive) > 1}
        for (method, is_mix), mix in taught.items():
            plain = taught.get((method, False))
            if is_mix and plain is not None:
                gaps.append(_welch(place.encoder, place.task, mix, plain))
    return gaps


def _welch(encoder: str, task: str, mix: Cell, plain: Cell) -> Evidence:
    mean, half = distance(mix, plain)
    interval = (mean - (half or 0.0), mean + (half or 0.0))
    place = f"{encoder}/{task}/{mix.arm.method}"
    return Evidence(
        encoder=encoder,
        what=f"{TASKS.get(task, task)}, mix − plain",
        value=gap(Paired(count=0, mean=mean, interval=interval, p=1.0)),
        n=f"{len(mix.alive)} and {len(plain.alive)} seeds",
        source=f"grid.json: {place}/mix − {place}/plain",
        interval=interval,
    )


def _cell(encoder: str, task: str, cell: Cell) -> Evidence:
    mix = "mix" if cell.arm.mix else "plain"
    return Evidence(
        encoder=encoder,
        what=cell.arm.name,
        value=with_interval(cell.alive) if cell.alive else "–",
        n=f"{len(cell.alive)} of {len(cell.rows)} live",
        source=f"grid.json: {encoder}/{task}/{cell.arm.method}/{mix}",
        dead=cell.num_dead,
    )
