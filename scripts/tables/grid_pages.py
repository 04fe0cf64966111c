"""What the grid shows: tables of the default and of all arms, one sentence, heat maps."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import count

from bermo.figures.data import Heat
from bermo.runs.statistics import student_t
from scripts.tables.grid import ALONE, NEAR, SHORT, TASKS, Arm, Cell, Grid, Place, distance, grid, verdict
from scripts.tables.numbers import read, signed, table

LENGTHS = (" 1 epoch", " 2 epochs")
"""How tasks end that differ from another one in the length of training alone; heat maps leave them out."""
WANTED = 0.3
"""Points on either side of a mean that a comparison on SST-2 needs: the mix's gains are of that size."""


def defaults(known: Grid) -> str:
    """The default at every place, beside dense and beside the best arm."""
    rows = []
    for place in known.places:
        dense = place.dense[0] if place.dense else None
        rows.append(
            [
                place.encoder,
                TASKS.get(place.task, place.task),
                shown(dense),
                shown(place.default),
                _share(place.default, dense),
                "–" if place.best is None else f"{place.best.arm.name}: {shown(place.best)}",
                _behind(place),
                verdict(place),
            ]
        )
    head = [
        "encoder",
        "task",
        "dense",
        f"{known.default.name} (default)",
        "of dense",
        "best",
        "default − best",
    ]
    return table([*head, "verdict"], rows)


def counted(known: Grid) -> str:
    """One sentence: in how many places the default lives and is near the best."""
    run = [place for place in known.places if place.default is not None]
    alive = [place for place in run if place.default is not None and not place.default.num_dead]
    compared = [place for place in alive if verdict(place) != ALONE]
    near = [place for place in compared if verdict(place) in ("the best", f"within {NEAR}")]
    return (
        f"Of {len(run)} places (encoder and task) the default lives with every seed in {len(alive)}. Of the"
        f" {len(compared)} with another arm it is the best or within {NEAR} points of it in {len(near)}."
    )


def seeds_wanted(known: Grid) -> str:
    """How many seeds of the default narrow the interval to ± WANTED where the task is SST-2."""
    rows = []
    for place in known.places:
        name, cell = TASKS.get(place.task, place.task), place.default
        if not name.startswith("SST-2") or cell is None or cell.spread.interval is None:
            continue
        low, high = cell.spread.interval
        deviation = cell.spread.deviation
        rows.append(
            [place.encoder, name, str(len(cell.alive)), f"{deviation:.2f}", f"± {(high - low) / 2:.2f}",
             str(seeds_for(deviation, WANTED))]
        )  # fmt: skip
    head = ["encoder", "task", "seeds", "deviation of one", "interval", f"seeds for ± {WANTED}"]
    return table(head, rows) if rows else ""


def seeds_for(deviation: float, half: float) -> int:
    """Return the fewest seeds whose 95 % interval is no wider than ± half, if they deviate as much."""
    return next(n for n in count(2) if student_t(n - 1) * deviation / math.sqrt(n) <= half)


def arms_of(known: Grid, encoder: str) -> str:
    """Every arm on every task of an encoder; the best of a task is bold."""
    places = known.of(encoder)
    rows = []
    for arm in known.arms:
        cells = [_cell(place, arm) for place in places]
        if any(cells):
            name = f"{arm.name} (default)" if arm == known.default else arm.name
            rows.append([name, *map(_marked, places, cells), _kept([cell for cell in cells if cell])])
    return table(["", *(TASKS.get(place.task, place.task) for place in places), "kept"], rows)


def ranks() -> str:
    """What movement may rank by, and other methods, wherever one was run beside the default."""
    known = grid(read("grid.json"))
    head = {
        "sensitivity": "by sensitivity (default)",
        "size": "by size · σ(score)",
        "score": "by score (the paper's)",
        "soft": "soft movement",
        "magnitude": "magnitude",
    }
    rows = []
    for place in known.places:
        cells = {cell.arm.method: cell for cell in place.pruned if cell.arm.mix}
        if place.default is not None and len(cells.keys() & head.keys()) > 1:
            scores = [shown(cells.get(method)) for method in head]
            rows.append([place.encoder, TASKS.get(place.task, place.task), *scores])
    return table(["encoder", "task", *head.values()], rows)


def elsewhere(known: Grid, encoder: str) -> str:
    """Name the cells of an encoder that were not trained on the device of most trainings."""
    devices = Counter(
        row.device for place in known.places for cell in (*place.dense, *place.pruned) for row in cell.rows
    )
    usual = devices.most_common(1)[0][0]
    cells: dict[str, list[str]] = {}
    for place in known.of(encoder):
        for cell in (*place.dense, *place.pruned):
            for device in sorted({row.device for row in cell.rows} - {usual}):
                cells.setdefault(device, []).append(f"{cell.arm.name} on {TASKS.get(place.task, place.task)}")
    return " ".join(f"On {device}: {'; '.join(names)}." for device, names in cells.items())


def heats(known: Grid) -> list[Heat]:
    """Distance to the best of each task; empty where an arm lost a seed, is alone or was not run."""
    return [_heat(known, encoder) for encoder in known.encoders]


def _heat(known: Grid, encoder: str) -> Heat:
    places = [
        place
        for place in known.of(encoder)
        if place.default is not None and verdict(place) != ALONE and not place.task.endswith(LENGTHS)
    ]
    arms = [
        arm for arm in known.arms if arm.is_rival and not arm.dense and any(_cell(p, arm) for p in places)
    ]
    return Heat(
        title=encoder,
        x_label="task",
        y_label="arm",
        columns=tuple(
            TASKS.get(place.task, place.task.replace(", 20,000 rows", " part")) for place in places
        ),
        rows=tuple(_short(arm, known.default) for arm in arms),
        values=tuple(tuple(_behind_of(place, arm) for place in places) for arm in arms),
        unit="points",
        limits=(-5.0, 0.0),
        digits=1,
    )


def shown(cell: Cell | None) -> str:
    """Write a cell: mean ± half its interval, seeds, and how many died."""
    if cell is None:
        return "–"
    dead = f" † {cell.num_dead} of {len(cell.rows)}" if cell.num_dead else f" ({len(cell.rows)})"
    if not cell.alive:
        return dead.strip()
    interval = cell.spread.interval
    half = "" if interval is None else f" ± {(interval[1] - interval[0]) / 2:.2f}"
    return f"{cell.spread.mean:.2f}{half}{dead}"


def _marked(place: Place, cell: Cell | None) -> str:
    return f"**{shown(cell)}**" if cell is not None and cell is place.best else shown(cell)


def _short(arm: Arm, default: Arm) -> str:
    """Write an arm's name for the narrow space beside a heat map; a star marks the default."""
    words = SHORT.get(arm.method, arm.method)
    return f"{words}, {'mix' if arm.mix else 'plain'}{' ★' if arm == default else ''}"


def _cell(place: Place, arm: Arm) -> Cell | None:
    return next((cell for cell in (*place.dense, *place.pruned) if cell.arm == arm), None)


def _kept(cells: Sequence[Cell]) -> str:
    """Write the least and the most that was kept over the cells' trainings."""
    shares = [100 * row.density for cell in cells for row in cell.rows]
    low, high = (f"{share:.1f}" for share in (min(shares), max(shares)))
    return f"{low} %" if low == high else f"{low} … {high} %"


def _share(cell: Cell | None, dense: Cell | None) -> str:
    if cell is None or dense is None or not cell.alive or not dense.alive:
        return "–"
    return f"{100 * cell.spread.mean / dense.spread.mean:.1f} %"


def _behind(place: Place) -> str:
    if place.default is None or place.best is None or not place.default.alive:
        return "–"
    gap, half = distance(place.default, place.best)
    return signed(gap) if half is None else f"{signed(gap)} ± {half:.2f}"


def _behind_of(place: Place, arm: Arm) -> float | None:
    cell = _cell(place, arm)
    if cell is None or place.best is None or cell.num_dead or verdict(place) == ALONE:
        return None
    return round(distance(cell, place.best)[0], 3)
