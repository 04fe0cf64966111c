"""Figures of pruned runs: density over time, what is left of each matrix, gradients of each layer."""

import math
import re
from collections.abc import Sequence

from bermo.figures.data import Figure, Heat, Lines, Number
from bermo.report.collect import RunRecord

SITE = re.compile(r"kept/layer\.(\d+)\.(.+)")
GRADIENT = re.compile(r"gradient/layer\.(\d+)")


def density_figures(runs: Sequence[RunRecord]) -> tuple[Figure, ...]:
    """Draw what pruning did in the runs that pruned."""
    pruned = [run for run in runs if "density" in run.metrics()]
    kept = {run.name: _kept(run) for run in pruned}
    highest = max((share for map_ in kept.values() for share in map_.values()), default=1.0)
    figures: list[Figure | None] = [_over_time(pruned)]
    figures += [_map(name, shares, highest) for name, shares in kept.items() if shares]
    figures += [_gradients(run) for run in pruned]
    return tuple(figure for figure in figures if figure is not None)


def _over_time(runs: Sequence[RunRecord]) -> Lines | None:
    """Draw the density of each run; it follows the schedule, so that the first seed shows it."""
    curves = {run.name: run.seeds[0].curve("density") for run in runs}
    steps = sorted({step for curve in curves.values() for step in curve})
    if not steps:
        return None
    return Lines(
        title="Density over time",
        x_label="step",
        y_label="share of prunable weights kept",
        x=tuple(map(float, steps)),
        series={name: tuple(map(curve.get, steps)) for name, curve in curves.items()},
        is_joined=True,
        note="Of each run's first seed.",
    )


def _kept(run: RunRecord) -> dict[tuple[int, str], float]:
    """Return the share kept of every matrix of every layer in the end, as the mean over seeds."""
    shares_of: dict[tuple[int, str], list[float]] = {}
    for seed in run.seeds:
        last = next((row for row in reversed(seed.rows) if "density" in row), {})
        for name, share in last.items():
            site = SITE.fullmatch(name)
            if site and share is not None:
                shares_of.setdefault((int(site[1]), site[2]), []).append(share)
    return {site: math.fsum(shares) / len(shares) for site, shares in shares_of.items()}


def _map(name: str, shares: dict[tuple[int, str], float], highest: float) -> Heat:
    layers = sorted({layer for layer, _ in shares})
    matrices = tuple(dict.fromkeys(matrix for _, matrix in shares))
    values: tuple[tuple[Number, ...], ...] = tuple(
        tuple(shares.get((layer, matrix)) for matrix in matrices) for layer in layers
    )
    return Heat(
        title=f"Density of each matrix in the end: {name}",
        x_label="matrix",
        y_label="layer",
        columns=matrices,
        rows=tuple(map(str, layers)),
        values=values,
        unit="share kept",
        limits=(0.0, highest or 1.0),
        note="Mean over seeds. All runs have the same scale of colours.",
    )


def _gradients(run: RunRecord) -> Lines | None:
    """Draw the gradient norm of each layer over time, for the first seed."""
    seed = run.seeds[0]
    metric_of = {int(m[1]): m[0] for name in run.metrics() if (m := GRADIENT.fullmatch(name))}
    curves = {f"layer {layer}": seed.curve(metric_of[layer]) for layer in sorted(metric_of)}
    steps = sorted({step for curve in curves.values() for step in curve})
    if not steps:
        return None
    return Lines(
        title=f"Gradient norm of each layer: {run.name}",
        x_label="step",
        y_label="norm",
        x=tuple(map(float, steps)),
        series={name: tuple(map(curve.get, steps)) for name, curve in curves.items()},
        is_log=True,
        is_joined=True,
        note=f"Seed {seed.seed}. Powers of ten are equally far apart.",
    )
