"""A figure of every kind, and real runs to report on."""

import math
from dataclasses import replace
from pathlib import Path

from bermo.figures.data import Arcs, Bars, Figure, Findings, Heat, Lines, Points, Section, Table
from bermo.methods.finetune import finetune
from bermo.recipes import find, tiny
from bermo.spec import replace_in

NASTY = "<b>&\"'</b>"
LINES = Lines(
    title=f"Curves {NASTY}",
    x_label="layer",
    y_label="similarity",
    x=(0, 1, 2, 3, 4),
    series={"a": (1.0, 2.0, None, 3.0, 2.5), NASTY: (0.5, 0.4, 0.3, 0.2, 0.1)},
    bands={"a": ((0.5, 1.5), (1.0, 3.0), (0.0, 0.0), (2.0, 4.0), (2.0, 3.0))},
    note="Bands are intervals.",
)
HEAT = Heat(
    title="Grid",
    x_label="head",
    y_label="layer",
    columns=("1", "2", NASTY),
    rows=("1", "2"),
    values=((0.1, 0.9, None), (-0.4, 0.0, 0.2)),
    unit="points",
    center=0.0,
)
BARS = Bars(
    title="Bars",
    x_label="arm",
    y_label="accuracy (%)",
    names=("plain", NASTY, "pruned"),
    series={"sst2": (10.0, None, 88.0), "rte": (60.0, 61.5, 58.0)},
    errors={"rte": ((58.0, 62.0), (60.0, 63.0), (math.nan, math.nan))},
)
POINTS = Points(
    title="Points",
    x_label="size (MB)",
    y_label="score",
    x=(400.0, 100.0, 20.0),
    y=(92.0, 90.5, 85.0),
    names=("big", NASTY, "tiny"),
    groups=("fp32", "int8", "int8"),
    front=(0, 1, 2),
    is_log=True,
)
TABLE = Table(
    title="Rows", columns=("text", "loss"), rows=((NASTY, 10.0), ("b", None), ("c", 9.0), ("d", 1.5))
)
ARCS = Arcs(
    title="Trees",
    words=("the", NASTY, "cat", "sleeps"),
    above=((0, 2), (1, 2), (2, 3)),
    below=((0, 1), (1, 2), (2, 3)),
    names=("true tree", "predicted tree"),
)
LEVEL = replace(BARS, title="Level", is_level=True, limits=(20.0, 80.0))
FIGURES: tuple[Figure, ...] = (LINES, HEAT, BARS, LEVEL, POINTS, ARCS, TABLE)


def findings() -> Findings:
    """Return a figure of every kind in two sections."""
    return Findings(
        title=f"A look {NASTY}",
        facts={"model": "box"},
        sections=(
            Section(title="Drawn", text="What was found.", figures=FIGURES[:5]),
            Section(title="Rows", text="", figures=FIGURES[5:]),
        ),
    )


def train_runs(folder: Path) -> None:
    """Train a plain run of one seed and a pruned one of two, as small as can be."""
    arms = tiny(find("demo")(), Path()).arms
    plain = replace_in(arms["subject-number-plain"], train={"device": "cpu"})
    finetune(plain, folder / "plain")
    pruned = replace_in(
        arms["subject-number-mix"],
        train={"device": "cpu", "epochs": 2.0},
        prune={"method": "movement", "density": 0.3, "scope": "global", "warmup_steps": 1},
    )
    finetune(replace(pruned, seeds=(1, 2)), folder / "pruned")
