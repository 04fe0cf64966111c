"""What was measured for a claim: numbers with their interval, their count and the place they come from.

A source is a file of results/ and an expression over its arms; tests/docs/test_verdicts.py computes every
printed number again from it:

    gpu.json: A              the mean of an arm's last scores over the seeds that live
    gpu.json: matthews A     the mean of Matthews' correlation over all seeds of an arm, best evaluation
    gpu.json: A − B          the mean difference, paired by the seeds that live in both
    core-gpu.json: TASK      mix − plain of dense models, paired by seed
    probing-gpu.json: CASE   mix − plain, the mean of the semantic tasks, paired by seed
    probing-gpu.json: CASE − CASE        the mix of the first less the plain encoder of the second
    probing-gpu.json: CASE/ARM           the mean of an arm's last scores over the seeds that did not diverge
    probing-gpu.json: CASE/ARM − CASE/ARM  the mean difference, paired by the seeds that diverged in neither
    grid.json: ENCODER/TASK/METHOD/mix   the mean of a cell of the grid
    grid.json: ENCODER/N tasks/METHOD/mix  the seeds that live, over the tasks that have the mix and plain
    box-rank-cpu.json: RUN               the last score of its one seed
    grid.json: CELL − CELL               the difference of two means, with Welch's interval
    grid.json: kept CELL ÷ CELL          how many times as many weights the first keeps (means of logs)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean

from bermo.methods.probing.paired import Paired
from bermo.printing import number_of
from scripts.tables.counts import counted
from scripts.tables.grid import TASKS, WORDS, Arm, Cell, Grid, Place, distance, grid, welch
from scripts.tables.numbers import (
    RESULTS,
    difference,
    gap,
    last_scores,
    num_seeds,
    read,
    spread,
    table,
    with_interval,
)
from scripts.tables.scores import encoder_of, named_tasks, plain_case, reading_of, semantic_gain


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One measured number of a claim."""

    encoder: str
    what: str
    value: str
    n: str
    source: str
    interval: tuple[float, float] | None = None
    """Of a difference or a ratio: what verdicts follow from."""
    dead: int = 0
    num_seeds: int = 0
    """Of an arm, whose seeds are counted; a difference has pairs."""
    ends: tuple[float, float] | None = None
    """The interval of an arm's own mean, which figures show."""

    @property
    def data(self) -> str:
        """What a difference was measured on, by its words."""
        return self.what.removeprefix("mix − plain, ").replace(", mix, ", ", ").partition(": ")[0]

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
        n=counted(len(alive), num_seeds(name), "live"),
        source=f"gpu.json: {name}",
        dead=num_seeds(name) - len(alive),
        num_seeds=num_seeds(name),
    )


def matthews(what: str, name: str) -> Evidence:
    """How far an arm's answers are from chance, dead seeds among them: one answer for everything has 0."""
    values = [seed["values"]["matthews"] for seed in read("gpu.json")[name]["seeds"]]
    return Evidence(
        encoder="gte-small",
        what=f"{what}: Matthews",
        value=with_interval(values).replace("-", "−"),
        n=number_of(len(values), "seed"),
        source=f"gpu.json: matthews {name}",
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
        n=number_of(known.count, "pair"),
        source=f"gpu.json: {one} − {other}",
        interval=known.interval,
    )


def core_pairs() -> list[Evidence]:
    """Mix − plain of the dense models of core-gpu.json that no other file has."""
    found = []
    for task, words in (("conll2003", "CoNLL-2003"), ("squad", "SQuAD")):
        scores = {
            (run["arm"], run["seed"]): run["last_score"]
            for run in read("core-gpu.json")["runs"]
            if run["task"] == task
        }
        known = spread([scores["mix", seed] - scores["plain", seed] for arm, seed in scores if arm == "mix"])
        found.append(
            Evidence(
                encoder="gte-small",
                what=f"{words}, mix − plain",
                value=gap(known),
                n=number_of(known.count, "pair"),
                source=f"core-gpu.json: {task}",
                interval=known.interval,
            )
        )
    return found


def semantic(case: str) -> Evidence:
    """Mix − plain over the semantic tasks."""
    gain = semantic_gain(case)[2]
    reading = reading_of(case)
    less = f" − {plain_case(case)}" if reading else ""
    return Evidence(
        encoder=encoder_of(case),
        what=f"mix − plain, {named_tasks(case)}" + (f", norm {reading}" if reading else ""),
        value=gap(gain),
        n=f"{gain.count} pairs",
        source=f"probing-gpu.json: {case}{less}",
        interval=gain.interval,
    )


def fine_tuned(what: str, case: str, name: str) -> Evidence:
    """An arm of fine-tuned probing: the mean of the seeds that did not diverge, and how many those are."""
    runs = read("probing-gpu.json")["finetuned"][case][name]
    scores = [run["last_score"] for run in runs if run["diverged"] is None]
    return Evidence(
        encoder=encoder_of(case),
        what=what,
        value=with_interval(scores) if scores else "–",
        n=counted(len(scores), len(runs), "learn"),
        source=f"probing-gpu.json: {case}/{name}",
        dead=len(runs) - len(scores),
        num_seeds=len(runs),
        ends=spread(scores).interval if scores else None,
    )


def fine_tuned_gap(what: str, case: str, task: str) -> Evidence:
    """Mix − plain of a fine-tuned probe, by the seeds that learn both ways; shown beside its two arms."""
    arms = read("probing-gpu.json")["finetuned"][case]
    mix, plain = (
        {run["seed"]: run["last_score"] for run in arms[f"{task}-{form}"] if run["diverged"] is None}
        for form in ("mix", "plain")
    )
    known = spread([mix[seed] - plain[seed] for seed in sorted(mix.keys() & plain.keys())])
    return Evidence(
        encoder=encoder_of(case),
        what=f"{what}, mix − plain",
        value=gap(known),
        n=number_of(known.count, "pair"),
        source=f"probing-gpu.json: {case}/{task}-mix − {case}/{task}-plain",
    )


def measured_grid() -> Grid | None:
    """The grid of further encoders, where it was measured."""
    return _grid_in(RESULTS)


@cache
def _grid_in(folder: Path) -> Grid | None:
    return grid(read("grid.json")) if (folder / "grid.json").exists() else None


def _arms(place: Place) -> dict[tuple[str, bool], Cell]:
    return {(cell.arm.method, cell.arm.mix): cell for cell in (*place.dense, *place.pruned)}


def mix_gaps(known: Grid | None, is_wanted: Callable[[Place, Arm], bool]) -> list[Evidence]:
    """Mix − plain of the arms of the grid that are wanted and have two seeds or more that live in both."""
    gaps = []
    for place in known.places if known else ():
        arms = _arms(place)
        for (method, is_mix), mix in arms.items():
            plain = arms.get((method, False))
            if is_mix and plain is not None and is_wanted(place, mix.arm):
                words = WORDS.get(method, method).removesuffix(" (the paper's)")
                if min(len(mix.alive), len(plain.alive)) > 1:
                    gaps.append(_welch(place, f"{words}, mix − plain", mix, plain))
    return gaps


def teacher_gains(known: Grid | None) -> list[Evidence]:
    """Taught − untaught of the default, wherever both were run."""
    gains = []
    for place in known.places if known else ():
        taught = _arms(place).get(("taught", True))
        if taught is not None and place.default is not None:
            gains.append(_welch(place, "mix, by sensitivity: taught − untaught", taught, place.default))
    return gains


def kept_ratios(known: Grid | None) -> list[tuple[Evidence, float]]:
    """How many times as many weights plain keeps as the mix at one penalty, and the mix's share."""
    found = []
    for place in known.places if known else ():
        arms = _arms(place)
        for (method, is_mix), mix in arms.items():
            plain = arms.get((method, False))
            if is_mix and mix.arm.has_penalty and plain is not None:
                found.append((_ratio(place, plain, mix), fmean(row.density for row in mix.rows)))
    return found


def _ratio(place: Place, plain: Cell, mix: Cell) -> Evidence:
    method = mix.arm.method
    shares = [fmean(row.density for row in cell.rows) for cell in (plain, mix)]
    logs = [[math.log(row.density) for row in cell.rows] for cell in (plain, mix)]
    middle, half = welch(*logs)
    low, high = (math.exp(middle + sign * (half or 0.0)) for sign in (-1, 1))
    where = f"{place.encoder}/{place.task}/{method}"
    words = f"{TASKS.get(place.task, place.task)}, {WORDS[method]}"
    kept = " and ".join(f"{100 * share:.0f}" for share in shares)
    return Evidence(
        encoder=place.encoder,
        what=f"{words}: kept by plain ÷ by the mix ({kept} %)",
        value=f"{math.exp(middle):.3f} × ({low:.3f} … {high:.3f})",
        n=f"{len(plain.rows)} and {len(mix.rows)} seeds",
        source=f"grid.json: kept {where}/plain ÷ {where}/mix",
        interval=(low, high),
    )


def _welch(place: Place, what: str, one: Cell, other: Cell) -> Evidence:
    mean, half = distance(one, other)
    interval = (mean - (half or 0.0), mean + (half or 0.0))
    names = [
        f"{place.encoder}/{place.task}/{c.arm.method}/{'mix' if c.arm.mix else 'plain'}" for c in (one, other)
    ]
    return Evidence(
        encoder=place.encoder,
        what=f"{TASKS.get(place.task, place.task)}, {what}",
        value=gap(Paired(count=0, mean=mean, interval=interval, p=1.0)),
        n=f"{len(one.alive)} and {len(other.alive)} seeds",
        source=f"grid.json: {names[0]} − {names[1]}",
        interval=interval,
    )


def cell_evidence(encoder: str, task: str, cell: Cell) -> Evidence:
    """A cell of the grid: the mean of its seeds that live, and how many do."""
    return Evidence(
        encoder=encoder,
        what=f"{TASKS.get(task, task)}, {cell.arm.name}",
        value=with_interval(cell.alive) if cell.alive else "–",
        n=counted(len(cell.alive), len(cell.rows), "live"),
        source=f"grid.json: {encoder}/{task}/{cell.arm.method}/{'mix' if cell.arm.mix else 'plain'}",
        dead=cell.num_dead,
        num_seeds=len(cell.rows),
    )
