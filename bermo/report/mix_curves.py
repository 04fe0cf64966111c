"""The share of each layer in a run's mix, over training."""

from collections.abc import Sequence
from math import fsum

from bermo.figures.data import Lines
from bermo.report.collect import RunRecord
from bermo.runs.rows import SHARE

MOST_RUNS = 12
"""Runs that get a figure of their own."""


def mix_figures(runs: Sequence[RunRecord]) -> tuple[Lines, ...]:
    """Draw the mix of each run whose training logged it."""
    figures = (mix_over_steps(run) for run in runs[:MOST_RUNS])
    return tuple(figure for figure in figures if figure is not None)


def mix_over_steps(run: RunRecord) -> Lines | None:
    """Draw the share of each layer at each evaluation, the mean over seeds; one evaluation is no curve."""
    names = [name for name in run.metrics() if name.startswith(SHARE)]
    curves = {name: [seed.curve(name) for seed in run.seeds] for name in names}
    steps = sorted({step for seeds in curves.values() for curve in seeds for step in curve})
    if len(steps) < 2:
        return None
    return Lines(
        title=f"Weight of each layer in the mix over training: {run.name}",
        x_label="step",
        y_label="share of the mix",
        x=tuple(map(float, steps)),
        series={
            f"layer {name.removeprefix(SHARE)}": tuple(_mean(seeds, step) for step in steps)
            for name, seeds in curves.items()
        },
        is_joined=True,
        note="Mean over seeds." if len(run.seeds) > 1 else "",
    )


def _mean(seeds: Sequence[dict[int, float]], step: int) -> float | None:
    known = [curve[step] for curve in seeds if step in curve]
    return fsum(known) / len(known) if known else None
