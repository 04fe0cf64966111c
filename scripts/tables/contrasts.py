"""Seeds that live, plain beside mixed: the same training of both, of which the seeds are counted."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from scripts.tables.counts import chance_of_more, counted
from scripts.tables.evidence import Evidence, arm, cell_evidence, fine_tuned
from scripts.tables.grid import TASKS, WORDS, Cell, Grid, Place
from scripts.tables.numbers import read
from scripts.tables.scores import encoder_of


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """One training, plain and mixed."""

    case: str
    """Task, length and ranking, in words."""
    plain: Evidence
    mix: Evidence

    @property
    def encoder(self) -> str:
        return self.mix.encoder

    @property
    def data(self) -> str:
        """What was trained on: the case without its length and its ranking."""
        words = self.case.partition(", movement ")[0].partition(", by ")[0]
        return re.sub(r", \d+ epochs?$", "", words)

    @property
    def rows(self) -> tuple[Evidence, Evidence]:
        return self.plain, self.mix

    @property
    def chance(self) -> float:
        """How likely so many plain deaths are where the mix changes nothing."""
        return chance_of_more(self.plain.dead, self.plain.num_seeds, self.mix.dead, self.mix.num_seeds)


def rows_of(contrasts: Iterable[Contrast]) -> tuple[Evidence, ...]:
    """Return the numbers of contrasts, in their order."""
    return tuple(row for one in contrasts for row in one.rows)


def of_arms(case: str, name: str, *, ended: str = "") -> Contrast:
    """Two arms of gpu.json, NAME-plain and NAME-mix (NAME/plain where it ends in a slash)."""
    plain, mix = (f"{name}{arm}" if name.endswith("/") else f"{name}-{arm}" for arm in ("plain", "mix"))
    return Contrast(case=case, plain=arm(f"{case}, plain{ended}", plain), mix=arm(f"{case}, mix", mix))


def of_box(case: str, name: str) -> Contrast:
    """Two runs of box-rank-cpu.json, of one seed each."""
    return Contrast(case=case, plain=_of_box(case, name, "plain"), mix=_of_box(case, name, "mix"))


def _of_box(case: str, name: str, form: str) -> Evidence:
    run = read("box-rank-cpu.json")[f"{name}-{form}"]
    dead = int(run["diverged"] is not None)
    return Evidence(
        encoder="the box",
        what=f"{case}, {form}",
        value="–" if dead else f"{run['last_score']:.2f}",
        n=counted(1 - dead, 1, "live"),
        source=f"box-rank-cpu.json: {name}-{form}",
        dead=dead,
        num_seeds=1,
    )


def of_probing(case: str, task: str, words: str) -> Contrast:
    """Two arms of fine-tuned probing, of which the seeds that learn are counted."""
    plain, mix = (fine_tuned(f"{words}, {form}", case, f"{task}-{form}") for form in ("plain", "mix"))
    return Contrast(case=f"{encoder_of(case)}, {words}", plain=plain, mix=mix)


def of_grid(known: Grid | None, task: str, methods: tuple[str, ...]) -> tuple[Contrast, ...]:
    """Both forms of some methods on a task, for the encoders of the grid that have both."""
    return tuple(
        Contrast(
            case=f"{TASKS.get(task, task)}, {WORDS.get(method, method)}",
            plain=cell_evidence(place.encoder, task, plain),
            mix=cell_evidence(place.encoder, task, mix),
        )
        for place in (known.places if known else ())
        if place.task == task
        for method, plain, mix in _both(place, methods)
    )


def over_tasks(known: Grid | None, method: str) -> tuple[Contrast, ...]:
    """Seeds of a method over all tasks of the grid that have both forms, together for each encoder."""
    found = []
    for encoder in known.encoders if known else ():
        assert known is not None
        both = [(place.task, *cells) for place in known.of(encoder) for cells in _both(place, (method,))]
        if len(both) > 1:
            words = f"{len(both)} tasks and lengths, those above among them, {WORDS.get(method, method)}"
            plain, mix = ([cells[at] for cells in both] for at in (2, 3))
            found.append(
                Contrast(
                    case=words,
                    plain=_together(encoder, f"{words}, plain", plain),
                    mix=_together(encoder, f"{words}, mix", mix),
                )
            )
    return tuple(found)


def _both(place: Place, methods: tuple[str, ...]) -> list[tuple[str, Cell, Cell]]:
    cells = {(cell.arm.method, cell.arm.mix): cell for cell in place.pruned}
    return [
        (method, cells[method, False], cells[method, True])
        for method in methods
        if (method, False) in cells and (method, True) in cells
    ]


def _together(encoder: str, what: str, cells: list[Cell]) -> Evidence:
    total, dead = sum(len(cell.rows) for cell in cells), sum(cell.num_dead for cell in cells)
    first = cells[0].arm
    form = "mix" if first.mix else "plain"
    return Evidence(
        encoder=encoder,
        what=what,
        value="–",
        n=counted(total - dead, total, "live"),
        source=f"grid.json: {encoder}/{len(cells)} tasks/{first.method}/{form}",
        dead=dead,
        num_seeds=total,
    )
