"""The figures beside the tables of gpu_tables.py, drawn by bermo.figures.draw."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from gpu_runs import FIVE, METHODS, Arm, epochs_of_methods, find, longest
from gpu_words import TASKS, WORDS

from bermo.figures.data import Bars, Figure, Lines, Number
from bermo.figures.draw import write_panels, write_svg
from bermo.methods.probing.paired import Paired, paired

STEP, LOSS, DENSITY, NORM, SCORE = range(5)
SHORT = {
    "dense": "dense",
    "magnitude": "magnitude",
    "score": "by score",
    "size": "by size",
    "soft": "soft",
    "l0": "L0",
}
CONFIDENCE = "95 % intervals over the seeds that survived."


def draw_all(arms: Sequence[Arm], out: Path) -> list[str]:
    """Draw every figure whose runs are there; returns the names of the files."""
    drawn = []
    for rank in ("size", "score"):
        both = [arm for arm in longest(arms, rank) if arm is not None]
        rows = [[panel] for panel in _stability(both)]
        if rows:
            name = f"gpu-stability-{rank}.svg"
            write_panels(
                out / name,
                f"gte-small by {WORDS[rank].removeprefix('movement, by ')}, to 10 % on SST-2, every seed",
                rows,
                _ended(both),
            )
            drawn.append(name)
    panels = [[bars] for task in TASKS if (bars := _methods(arms, task)) is not None]
    if panels:
        title = "Methods at about 10 %, five seeds"
        note = f"Whiskers: {CONFIDENCE} A method most of whose seeds died has no mark."
        write_panels(out / "gpu-methods.svg", title, panels, note=note)
        drawn.append("gpu-methods.svg")
    for name, figure in (("gpu-mix.svg", _mix(arms)), ("gpu-epochs.svg", _epochs(arms))):
        if figure is not None:
            write_svg(out / name, figure)
            drawn.append(name)
    return drawn


def _ended(arms: Sequence[Arm]) -> str:
    """Say which arm was ended before the other one."""
    last = {arm.is_mix: max(row[STEP] or 0 for seed in arm.seeds for row in seed.curve) for arm in arms}
    if len(last) < 2 or last[False] == last[True]:
        return ""
    return f"Plain trainings were ended at step {last[False]:,.0f}, at the third evaluation with one answer."


def _stability(arms: Sequence[Arm]) -> Iterable[Figure]:
    """Yield the score of each evaluation, the training loss beside the density, and the gradient norm."""
    if not any(seed.curve for arm in arms for seed in arm.seeds):
        return
    kinds = (
        (SCORE, "accuracy on the dev set, %", False),
        (LOSS, "training loss; share of weights kept", False),
        (NORM, "gradient norm before the clip", True),
    )
    for column, label, is_log in kinds:
        yield _seeds(arms, column, label, is_log)


def _seeds(arms: Sequence[Arm], column: int, label: str, is_log: bool) -> Lines:
    """Return a curve for each seed, in one colour an arm, over one axis of steps."""
    curves: dict[str, dict[float, float]] = {}
    groups: dict[str, str] = {}
    for arm in arms:
        kind = f"{'mix' if arm.is_mix else 'plain'}, {len(arm.seeds)} seeds"
        for seed in arm.seeds:
            name = f"{'mix' if arm.is_mix else 'plain'} {seed.seed}"
            curves[name], groups[name] = _column(seed.curve, column), kind
    if column == LOSS:
        curves["share of weights kept"] = _column(arms[-1].seeds[0].curve, DENSITY)
    steps = sorted({0.0} | {step for points in curves.values() for step in points})
    series = {name: tuple(map(points.get, steps)) for name, points in curves.items()}
    return Lines(
        title="",
        x_label="step",
        y_label=label,
        x=tuple(steps),
        series=series,
        is_joined=True,
        groups=groups,
        is_log=is_log,
    )


def _column(curve: Sequence[Sequence[float | None]], column: int) -> dict[float, float]:
    return {
        float(row[STEP] or 0): float(value)
        for row in curve
        if (value := row[column]) is not None and math.isfinite(value)
    }


def _methods(arms: Sequence[Arm], task: str) -> Bars | None:
    """Return a dot with its interval for each method, plain beside mixed."""
    epochs = epochs_of_methods(arms, task)
    names, spreads = [], []
    for method in ("dense", *METHODS):
        own = None if method == "dense" else epochs
        both = [find(arms, method, is_mix, task=task, epochs=own) for is_mix in (False, True)]
        measured = [arm.spread(FIVE) if arm and arm.alive(FIVE) > 0.5 else None for arm in both]
        if measured != [None, None]:
            names.append(SHORT[method])
            spreads.append(measured)
    if not names:
        return None
    kinds = ("plain", "mix")
    return Bars(
        title=TASKS[task],
        x_label="",
        y_label="score on the dev set, %",
        names=tuple(names),
        series={kind: tuple(_mean(pair[k]) for pair in spreads) for k, kind in enumerate(kinds)},
        errors={kind: tuple(_ends(pair[k]) for pair in spreads) for k, kind in enumerate(kinds)},
    )


def _mix(arms: Sequence[Arm]) -> Lines | None:
    """Return the mean share of each layer in mixes, dense and pruned, with its interval over seeds."""
    wanted = {
        "dense": find(arms, "dense", True),
        "by size": find(arms, "size", True),
        "by size, taught": find(arms, "size", True, is_taught=True),
        "by score": find(arms, "score", True),
    }
    shares = {
        f"{name}, {arm.epochs:g} epochs, {len(arm.survivors())} seeds": [
            paired(layer) for layer in zip(*(s.weights for s in arm.seeds if not s.is_diverged), strict=True)
        ]
        for name, arm in wanted.items()
        if arm is not None and arm.survivors()
    }
    if not shares:
        return None
    return Lines(
        title="Where mixes read: the weight of each layer, SST-2",
        x_label="layer; 0 is the embeddings",
        y_label="share of the mix, mean over seeds",
        x=tuple(range(len(next(iter(shares.values()))))),
        series={name: tuple(map(_mean, spreads)) for name, spreads in shares.items()},
        bands={
            name: tuple((max(0.0, low), high) for low, high in map(_ends, spreads))
            for name, spreads in shares.items()
        },
        note=f"Bands: {CONFIDENCE}",
    )


def _epochs(arms: Sequence[Arm]) -> Lines | None:
    """Return the score of runs of different lengths, plain beside mixed, and the dense score."""
    lengths = sorted({arm.epochs for arm in arms if find(arms, "size", arm.is_mix, epochs=arm.epochs)})
    spreads = {
        kind: [arm.spread(FIVE) if (arm := find(arms, "size", is_mix, epochs=n)) else None for n in lengths]
        for kind, is_mix in (("plain", False), ("mix", True))
    }
    if len(lengths) < 2:
        return None
    series = {kind: tuple(map(_mean, of_kind)) for kind, of_kind in spreads.items()}
    whole = find(arms, "dense", False)
    if whole is not None:
        series["dense, plain"] = (_mean(whole.spread(FIVE)),) * len(lengths)
    return Lines(
        title="Epochs to 10 %, by size · σ(score), SST-2, 5 seeds",
        x_label="epochs of the whole run",
        y_label="accuracy on the dev set, %",
        x=tuple(lengths),
        series=series,
        bands={kind: tuple(map(_ends, of_kind)) for kind, of_kind in spreads.items()},
        is_joined=True,
        note=f"Bands: {CONFIDENCE}",
    )


def _mean(spread: Paired | None) -> Number:
    return spread.mean if spread else None


def _ends(spread: Paired | None) -> tuple[float, float]:
    return spread.interval if spread and spread.interval else (math.nan, math.nan)
