"""Figures of runs side by side: summary, score with interval, curves, layer weights, density, settings.

A curve is the mean over a run's seeds, its band the lowest and the highest of them. Where a run has several
seeds, its own section shows them one by one.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bermo.data.tasks import with_unit
from bermo.figures.axes import finite
from bermo.figures.data import Bars, Figure, Findings, Lines, Number, Section, Table
from bermo.report.collect import MANY, RunRecord
from bermo.report.density import density_figures
from bermo.report.mix_curves import mix_figures
from bermo.runs.statistics import last_scores

BAND = "Mean over seeds; a band reaches from the lowest seed to the highest."
# Runs side by side as bars; more of them are curves.
MAX_BARS = 3
EMPTY = (math.nan, math.nan)


def runs_findings(runs: Sequence[RunRecord]) -> Findings:
    """Turn runs into sections: all of them side by side first, then each one's seeds."""
    if len(runs) > MANY:
        return many_findings(runs)
    sections = [
        Section(title="Summary", text=_summary_text(runs), figures=_summary(runs)),
        Section(title="Curves of training", text="", figures=_curves(runs)),
        Section(
            title="Weight of each layer", text=_WEIGHTS_TEXT, figures=(*_weights(runs), *mix_figures(runs))
        ),
        Section(title="What pruning kept", text=_DENSITY_TEXT, figures=density_figures(runs)),
        *(Section(title=f"Seeds of {run.name}", text="", figures=_seeds(run)) for run in runs),
        Section(title="Settings", text="", figures=(_settings(runs),)),
    ]
    kept = tuple(section for section in sections if section.figures)
    return Findings(title="Runs", facts=_facts(runs), sections=kept)


_WEIGHTS_TEXT = (
    "The head reads a weighted mean of the layers. A weight is the share that training gave to a layer; "
    "they sum to 1. Layer 0 is the embeddings."
)
_MANY_TEXT = f"Curves, layers and seeds are shown for {MANY} runs or fewer: name the folders of those."
_DENSITY_TEXT = "Density is the share of weights that is kept."


def _facts(runs: Sequence[RunRecord]) -> dict[str, str]:
    """Say where the runs were computed, and with what."""
    done = [seed.result for run in runs for seed in run.seeds if seed.result is not None]
    devices = dict.fromkeys(result.device for result in done)
    versions = dict.fromkeys(
        ", ".join(f"{name} {value}" for name, value in result.versions.items()) for result in done
    )
    facts = {"device": "; ".join(devices), "versions": "; ".join(versions)}
    return {name: value for name, value in facts.items() if value}


def _summary_text(runs: Sequence[RunRecord]) -> str:
    known = "Low and high are the ends of the 95 % interval of the mean over seeds."
    alone = "No run has two finished seeds, so no score has an interval: with another seed it will differ."
    sentences = [known if _has_intervals(runs) else alone]
    for run in runs:
        if run.result is None:
            sentences.append(f"{run.name} has no finished seed yet.")
        elif run.result.num_diverged:
            number, total = run.result.num_diverged, len(run.result.seeds)
            sentences.append(f"{number} of {total} seeds of {run.name} diverged.")
    return " ".join(sentences)


def _has_intervals(runs: Sequence[RunRecord]) -> bool:
    return any(run.result is not None and run.result.interval is not None for run in runs)


def _summary(runs: Sequence[RunRecord]) -> tuple[Figure, ...]:
    columns: tuple[str, ...] = (
        "run",
        "metric",
        "score",
        "low",
        "high",
        "deviation",
        "last score",
        "seeds",
        "diverged",
        "density",
        "seconds",
        "rows/s",
        "peak memory (MiB)",
        "parameters",
        "task",
        "encoder",
        "mix",
    )
    # Without a second seed nothing stands in them, and a phone has room for few columns.
    left_out = set() if _has_intervals(runs) else {"low", "high", "deviation"}
    shown = [at for at, name in enumerate(columns) if name not in left_out]
    table = Table(
        title="Score and cost of each run",
        columns=tuple(columns[at] for at in shown),
        rows=tuple(tuple(row[at] for at in shown) for row in map(_summary_row, runs)),
        note="The score is the mean of each seed's best evaluation, which the validation rows chose, the last"
        " score that of their last evaluations. Seconds are the sum over seeds; seeds trained together share"
        " theirs evenly. Density (the share that --density asks for), speed and memory are their mean.",
    )
    metrics = dict.fromkeys(run.result.metric for run in runs if run.result is not None)
    figures = [_scores(runs, metric) for metric in metrics]
    drawn = (figure for figure in figures if finite(*figure.series.values()))
    return (table, *drawn)


def _summary_row(run: RunRecord) -> tuple[str | Number, ...]:
    task, model = run.spec["data"]["task"], run.spec["model"]
    what = (task, model["backbone"], model["mix"]["kind"])
    result = run.result
    if result is None:
        return (run.name, "", *[None] * 5, 0, *[None] * 6, *what)
    scores = (result.mean, *(result.interval or EMPTY), result.deviation, last_scores(result).mean)
    seeds = result.seeds
    return (
        run.name,
        result.metric,
        *(round(score, 2) for score in scores),
        len(seeds),
        result.num_diverged,
        round(_mean([seed.kept for seed in seeds]), 4),
        round(sum(seed.own_seconds for seed in seeds), 1),
        round(_mean([seed.rows_per_second for seed in seeds]), 1),
        round(_mean([seed.peak_memory_mib for seed in seeds]), 1),
        seeds[0].num_parameters,
        *what,
    )


def _scores(runs: Sequence[RunRecord], metric: str) -> Bars:
    results = {run.name: run.result for run in runs if run.result and run.result.metric == metric}
    return Bars(
        title=f"{metric}: mean over seeds with its 95 % interval"
        if _has_intervals(runs)
        else f"{metric} of each run",
        x_label="run",
        y_label=with_unit(metric),
        names=tuple(results),
        series={metric: tuple(result.mean for result in results.values())},
        errors={metric: tuple(result.interval or EMPTY for result in results.values())},
        note="Seeds that diverged do not count. A run of one seed has no interval.",
    )


def _curves(runs: Sequence[RunRecord]) -> tuple[Figure, ...]:
    """Draw loss, scores of the validation set and gradient norm, all runs in each figure."""
    scores = dict.fromkeys(f"valid/{run.result.metric}" for run in runs if run.result)
    # No seed has ended: the first score is the one the loop goes by.
    if not scores:
        names = [name for run in runs for name in run.metrics() if name.startswith("valid/")]
        scores = dict.fromkeys(names[:1])
    figures = [
        over_runs(runs, "loss", "Training loss", "loss"),
        *(
            over_runs(runs, name, f"{_plain(name)} on the validation set", with_unit(_plain(name)))
            for name in scores
        ),
        over_runs(runs, "gradient_norm", "Gradient norm before clipping", "norm", is_log=True),
    ]
    return tuple(figure for figure in figures if figure is not None)


def _plain(name: str) -> str:
    return name.removeprefix("valid/")


def over_runs(
    runs: Sequence[RunRecord], metric: str, title: str, y_label: str, *, is_log: bool = False
) -> Lines | None:
    """Draw a metric of all runs that have it, each as the mean over its seeds with a band."""
    values_of = {run.name: seed_values(run, metric) for run in runs}
    values_of = {name: values for name, values in values_of.items() if values}
    steps = sorted({step for values in values_of.values() for step in values})
    # One evaluation is no curve; the score stands in the summary.
    if len(steps) < 2:
        return None
    bands = {
        name: tuple((min(values[s]), max(values[s])) if s in values else EMPTY for s in steps)
        for name, values in values_of.items()
        if any(len(numbers) > 1 for numbers in values.values())
    }
    return Lines(
        title=title,
        x_label="step",
        y_label=y_label,
        x=tuple(map(float, steps)),
        series={
            name: tuple(_mean(values[s]) if s in values else None for s in steps)
            for name, values in values_of.items()
        },
        bands=bands,
        is_log=is_log,
        is_joined=True,
        note=BAND if bands else "",
    )


def seed_values(run: RunRecord, metric: str) -> dict[int, list[float]]:
    """Return a metric's values over the seeds, at each step."""
    values: dict[int, list[float]] = {}
    for seed in run.seeds:
        for step, value in seed.curve(metric).items():
            values.setdefault(step, []).append(value)
    return values


def _weights(runs: Sequence[RunRecord]) -> tuple[Figure, ...]:
    """Draw the mix's weights of all runs that have a mix: bars for few runs, curves for many."""
    shares_of: dict[str, dict[int, list[float]]] = {}
    for run in runs:
        by_layer: dict[int, list[float]] = {}
        for seed in run.seeds:
            if seed.result is not None and len(seed.result.mix_weights) > 1:
                pairs = zip(seed.result.mix_layers, seed.result.mix_weights, strict=True)
                for layer, weight in pairs:
                    by_layer.setdefault(layer, []).append(weight)
        if by_layer:
            shares_of[run.name] = by_layer
    if not shares_of:
        return ()
    layers = sorted({layer for values in shares_of.values() for layer in values})
    means = {
        name: tuple(_mean(values[k]) if k in values else None for k in layers)
        for name, values in shares_of.items()
    }
    ends = {
        name: tuple((min(values[k]), max(values[k])) if k in values else EMPTY for k in layers)
        for name, values in shares_of.items()
        if max(map(len, values.values())) > 1
    }
    title, y_label = "Weight of each layer in the mix", "share of the mix"
    note = "Mean over seeds; the ends are the lowest and the highest seed." if ends else ""
    if len(shares_of) <= MAX_BARS:
        names = tuple(map(str, layers))
        return (
            Bars(
                title=title,
                x_label="layer",
                y_label=y_label,
                names=names,
                series=means,
                errors=ends,
                note=note,
            ),
        )
    x = tuple(map(float, layers))
    return (Lines(title=title, x_label="layer", y_label=y_label, x=x, series=means, bands=ends, note=note),)


def _seeds(run: RunRecord) -> tuple[Figure, ...]:
    """Show a run's seeds: what each gave, and their curves where there are several."""
    done = [seed.result for seed in run.seeds if seed.result is not None]
    if not done:
        return ()
    names = list(done[0].values)
    rows = tuple(
        (
            float(result.seed),
            *(result.values.get(name) for name in names),
            result.last_score,
            result.frozen_score,
            float(result.best_step),
            float(result.steps),
            round(result.own_seconds, 2),
            result.verdict,
        )
        for result in done
    )
    columns = ("seed", *names, "last score", "frozen", "best step", "steps", "seconds", "verdict")
    table = Table(title=f"Every seed of {run.name}", columns=columns, rows=rows)
    if len(run.seeds) < 2:
        return (table,)
    score = f"valid/{done[0].metric}"
    curves = (
        _by_seed(run, "loss", "Training loss of every seed", "loss"),
        _by_seed(run, score, f"{done[0].metric} of every seed", with_unit(done[0].metric)),
    )
    return (table, *(figure for figure in curves if figure is not None))


def _by_seed(run: RunRecord, metric: str, title: str, y_label: str) -> Lines | None:
    curves = {f"seed {seed.seed}": seed.curve(metric) for seed in run.seeds}
    steps = sorted({step for curve in curves.values() for step in curve})
    if len(steps) < 2:
        return None
    series = {name: tuple(curve.get(step) for step in steps) for name, curve in curves.items()}
    x = tuple(map(float, steps))
    return Lines(
        title=f"{title}: {run.name}", x_label="step", y_label=y_label, x=x, series=series, is_joined=True
    )


def many_findings(runs: Sequence[RunRecord]) -> Findings:
    """Turn more runs than can be drawn into two tables: what they gave, and in what they differ."""
    flat = [_flatten(run.spec) for run in runs]
    known = dict.fromkeys(name for values in flat for name in values)
    fields = [name for name in known if len({values.get(name) for values in flat}) > 1]
    settings = Table(
        title="Settings that differ",
        columns=("run", *fields),
        rows=tuple(
            (run.name, *(values.get(name, "") for name in fields))
            for run, values in zip(runs, flat, strict=True)
        ),
    )
    text = f"{_summary_text(runs)} {_MANY_TEXT}"
    sections = (
        Section(title="Summary", text=text, figures=_summary(runs)[:1]),
        Section(title="Settings", text="", figures=(settings,)),
    )
    return Findings(title="Runs", facts=_facts(runs), sections=sections)


def _settings(runs: Sequence[RunRecord]) -> Table:
    """List every field of the specs, those that differ between the runs first."""
    flat = [_flatten(run.spec) for run in runs]
    fields = dict.fromkeys(name for values in flat for name in values)
    rows = [(name, *(values.get(name, "") for values in flat)) for name in fields]
    rows.sort(key=lambda row: len(set(row[1:])) == 1)
    return Table(
        title="Settings of each run",
        columns=("field", *(run.name for run in runs)),
        rows=tuple(rows),
        note="Fields that differ come first." if len(runs) > 1 else "",
    )


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{name}.")
        else:
            shown = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            flat[prefix + name] = "–" if value is None else shown
    return flat


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
