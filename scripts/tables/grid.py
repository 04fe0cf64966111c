"""The grid of pruned models: encoder × task × method, means with intervals, dead seeds, distance to the best.

A row of results/grid.json is one training: {"encoder", "task", "method", "mix", "seed", "score", "last",
"dead", "density", "dense", "device"}. A cell is all seeds of an arm on a task with an encoder:

    mean ± t · sd / √n of the last evaluation over the seeds that live (Student)
    best = the highest mean of a pruned, untaught arm without a dead seed
    distance = mean − mean of the best (Welch)
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

from bermo.errors import BermoError
from bermo.methods.checks import resolve_prune
from bermo.runs.statistics import Spread, spread, student_t
from bermo.spec import MixSpec, PruneSpec, chosen
from bermo.typed import check_fields

WORDS = {
    "dense": "dense",
    "default": "movement, the default",
    "sensitivity": "movement by sensitivity",
    "no-scores": "by sensitivity, without scores",
    "size": "movement by size · σ(score)",
    "size-global": "by size, over all matrices",
    "score": "movement by score (the paper's)",
    "soft": "soft movement",
    "soft-movement": "soft movement",
    "magnitude": "magnitude",
    "l0": "L0",
    "size-random": "movement by size · σ(score), random head, embeddings frozen",
    "size-random-slow": "movement by size · σ(score), random head, embeddings frozen, rate 1e-5",
    "size-random-clip": "movement by size · σ(score), random head, embeddings frozen, clipped at 0.1",
    "size-random-late": "movement by size · σ(score), random head, embeddings frozen, pruned from 30 % on",
    "size-head": "movement by size · σ(score), random head",
    "size-frozen": "movement by size · σ(score), embeddings frozen",
    "taught": "movement by sensitivity, taught",
    "soft-penalty": "soft movement, the paper's penalty",
    "soft-penalty-4": "soft movement, 4 × the paper's penalty",
    "soft-penalty-20": "soft movement, 20 × the paper's penalty",
    "l0-penalty": "L0, the paper's penalty",
    "l0-penalty-4": "L0, 4 × the paper's penalty",
    "l0-penalty-20": "L0, 20 × the paper's penalty",
    "dense-random": "dense, random head, embeddings frozen",
}
SHORT = {
    "sensitivity": "by sensitivity",
    "no-scores": "without scores",
    "size": "by size",
    "size-global": "size over all",
    "size-random": "paper's start",
    "size-head": "random head",
    "size-frozen": "frozen",
    "score": "by score",
    "soft": "soft movement",
    "l0": "L0",
    "default": "movement",
}
"""For the narrow space beside a heat map, whose numbers need the rest."""
STARTS = ("size-random", "size-head", "size-frozen")
"""Arms that differ from "size" in how the training starts alone."""
CAUSES = ("size-random-slow", "size-random-clip", "size-random-late")
"""Arms that change one thing more, to learn why one of those starts kills."""
TASKS = {
    "sst2": "SST-2",
    "mrpc": "MRPC",
    "cola": "CoLA",
    "rte": "RTE",
    "qnli": "QNLI",
    "qqp": "QQP",
    "mr": "MR",
}
NEAR = 0.5
"""Points behind the best that are still called near."""
ALONE = "nothing to compare with"


@dataclass(frozen=True, kw_only=True)
class Training:
    """One row of the file."""

    encoder: str
    task: str
    method: str
    mix: bool
    seed: int
    score: float
    last: float
    dead: bool
    density: float
    dense: bool
    device: str


@dataclass(frozen=True, kw_only=True)
class Arm:
    """How a model was pruned."""

    method: str
    mix: bool
    dense: bool = False

    @property
    def name(self) -> str:
        return f"{WORDS.get(self.method, self.method)}, {'mix' if self.mix else 'plain'}"

    @property
    def is_taught(self) -> bool:
        """Whether a teacher helped, by the method's name: such an arm is shown, but is no rival of others."""
        return "taught" in self.method

    @property
    def has_penalty(self) -> bool:
        """Whether a penalty decided how much is kept: no rival of arms that keep a given share."""
        return "penalty" in self.method

    @property
    def is_rival(self) -> bool:
        """Whether it may be the best of a task."""
        return not (self.is_taught or self.has_penalty or self.method in CAUSES)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """All seeds of an arm on a task with an encoder."""

    arm: Arm
    rows: tuple[Training, ...]

    @property
    def alive(self) -> tuple[float, ...]:
        return tuple(row.last for row in self.rows if not row.dead)

    @property
    def num_dead(self) -> int:
        return sum(row.dead for row in self.rows)

    @property
    def spread(self) -> Spread:
        return spread(self.alive)


@dataclass(frozen=True, kw_only=True)
class Place:
    """A task with an encoder: its dense models, its pruned arms, the best of them, and the default."""

    encoder: str
    task: str
    dense: tuple[Cell, ...]
    pruned: tuple[Cell, ...]
    best: Cell | None
    default: Cell | None


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Every place of the file, in its order, and the default arm."""

    places: tuple[Place, ...]
    default: Arm

    @property
    def encoders(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(place.encoder for place in self.places))

    def of(self, encoder: str) -> tuple[Place, ...]:
        return tuple(place for place in self.places if place.encoder == encoder)

    @property
    def arms(self) -> tuple[Arm, ...]:
        """Dense arms, then the default, then the others in the file's order."""
        known = dict.fromkeys(cell.arm for place in self.places for cell in (*place.dense, *place.pruned))
        return tuple(sorted(known, key=lambda arm: (not arm.dense, arm != self.default)))


def grid(content: Iterable[Mapping[str, object]]) -> Grid:
    """Put the rows of the file together, or say which row is none."""
    rows = [_training(number, values) for number, values in enumerate(content, 1)]
    if not rows:
        raise BermoError("The grid has no row. Put one in for each training, as scripts/tables/grid.py says.")
    default = default_arm(rows)
    cells: dict[tuple[str, str], dict[Arm, list[Training]]] = {}
    for row in rows:
        arm = Arm(method=row.method, mix=row.mix, dense=row.dense)
        seeds = cells.setdefault((row.encoder, row.task), {}).setdefault(arm, [])
        if any(other.seed == row.seed for other in seeds):
            raise BermoError(
                f"Seed {row.seed} stands twice in {row.encoder}, {row.task}, {arm.name}. Keep one."
            )
        seeds.append(row)
    return Grid(places=tuple(_place(*names, arms, default) for names, arms in cells.items()), default=default)


def _training(number: int, values: Mapping[str, object]) -> Training:
    names = [field.name for field in fields(Training)]
    missing = [name for name in names if name not in values]
    if missing:
        raise BermoError(f"Row {number} of the grid lacks {', '.join(missing)}. It needs {', '.join(names)}.")
    row = Training(**{name: values[name] for name in names})  # type: ignore[arg-type]
    try:
        check_fields(row)
    except TypeError as error:
        raise BermoError(f"Row {number} of the grid: {error}. See scripts/tables/grid.py.") from None
    return row


def default_arm(rows: Sequence[Training]) -> Arm:
    """Return what a user gets by --prune movement: rows named so, or else the defaults of the specs."""
    named = [row for row in rows if row.method == "default"]
    if named:
        return Arm(method="default", mix=named[0].mix)
    rank = resolve_prune(PruneSpec(method="movement")).rank
    return Arm(method=chosen(rank), mix=MixSpec().kind != "none")


def _place(encoder: str, task: str, arms: dict[Arm, list[Training]], default: Arm) -> Place:
    cells = [Cell(arm=arm, rows=tuple(rows)) for arm, rows in arms.items()]
    pruned = tuple(cell for cell in cells if not cell.arm.dense)
    whole = [cell for cell in pruned if not cell.num_dead and cell.arm.is_rival]
    return Place(
        encoder=encoder,
        task=task,
        dense=tuple(cell for cell in cells if cell.arm.dense),
        pruned=pruned,
        best=max(whole, key=lambda cell: cell.spread.mean, default=None),
        default=next((cell for cell in pruned if cell.arm == default), None),
    )


def distance(cell: Cell, best: Cell) -> tuple[float, float | None]:
    """Return mean − mean of the best and half of its 95 % interval (Welch; no pairs by seed)."""
    if cell is best:
        return 0.0, None
    return welch(cell.alive, best.alive)


def welch(one: Sequence[float], other: Sequence[float]) -> tuple[float, float | None]:
    """Return the difference of two means and half of its 95 % interval."""
    gap = statistics.fmean(one) - statistics.fmean(other)
    if min(len(one), len(other)) < 2:
        return gap, None
    parts = [statistics.variance(each) / len(each) for each in (one, other)]
    if sum(parts) == 0:
        return gap, 0.0
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / (len(one) - 1) + parts[1] ** 2 / (len(other) - 1))
    return gap, student_t(max(1, math.floor(freedom))) * math.sqrt(sum(parts))


def verdict(place: Place) -> str:
    """Say in a few words how the default does at a place."""
    cell, best = place.default, place.best
    if cell is None:
        return "not run"
    if cell.num_dead:
        return f"**dies**: {cell.num_dead} of {len(cell.rows)} seeds"
    assert best is not None
    if sum(other.arm.is_rival for other in place.pruned) == 1:
        return ALONE
    gap, half = distance(cell, best)
    if gap >= -NEAR:
        return "the best" if cell is best else f"within {NEAR}"
    is_sure = half is None or gap + half < -NEAR
    return f"**behind** by {-gap:.2f}" + ("" if is_sure else f"; within {NEAR} is possible")
