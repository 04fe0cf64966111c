"""An atlas as figures: the share kept against speed and against size, with their fronts, and all numbers."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bermo.atlas.rows import Atlas, Row, front
from bermo.atlas.table import remarks
from bermo.figures.data import Findings, Points, Section, Table, write_findings
from bermo.figures.draw import write_svg
from bermo.files import write_text
from bermo.printing import number_of
from bermo.report.page import check_out, to_page
from bermo.runs.statistics import within

NEAR = 95
"""Percent of its teacher's score from which on a model is looked at more closely."""
COLUMNS = (
    "method",
    "score",
    "95 % interval",
    "seeds",
    "kept %",
    "same answers %",
    "same probabilities %",
    "MB",
    "smaller ×",
    "parameters stored",
    "not zero",
    "rows/s",
    "throughput ×",
    "least … most",
    "ms",
    "latency ×",
    "GPU throughput ×",
    "GPU latency ×",
    "training s",
    "what it is",
)
"""Of the page; the score stands second, so that a phone shows it."""


def write_figures(out: Path, atlas: Atlas) -> None:
    """Write figures.json, the front as SVG, and the page."""
    findings = atlas_findings(atlas)
    write_findings(out / "figures.json", findings)
    write_svg(out / "front.svg", speed_points(atlas))
    check_out(out / "page.html")
    write_text(out / "page.html", to_page([findings], f"bermo: {findings.title}"))


def atlas_findings(atlas: Atlas) -> Findings:
    """Return an atlas as sections of figures."""
    sections = (
        Section(
            title="What is kept, and for what",
            text=" ".join(filter(None, (atlas.picked, *remarks(atlas)))),
            figures=_fronts(atlas),
        ),
        Section(title="Every method", text=_about(atlas), figures=(_table(atlas),)),
        Section(
            title="Beside what was published",
            text="Each by its authors or a survey, mostly relative to BERT-base, on hardware of its own.",
            figures=(_published(atlas),),
        ),
        Section(
            title="How each was made",
            text="The commands of the first seed.",
            figures=(_commands(atlas),),
        ),
    )
    gpu = {} if atlas.gpu is None else {"GPU (torch, fp16)": atlas.gpu}
    facts = {
        "processor": atlas.machine,
        **gpu,
        "metric": atlas.metric,
        "validation rows": f"{atlas.num_rows:,}",
    }
    return Findings(title=f"Atlas of {atlas.title}", facts=facts, sections=sections)


def _about(atlas: Atlas) -> str:
    """Say what the columns of the page mean and where they were measured."""
    return (
        f"{atlas.metric} on {number_of(atlas.num_rows, 'row')}, the mean of the seeds. kept: of its teacher's"
        " score. same answers, same probabilities: as its teacher's. throughput, latency: times as many rows"
        f" a second and as short a call as dense, {atlas.caption}, on {atlas.machine}; baselines on texts."
        " least … most: of throughput in any round. training: own trainings of a seed, not the teacher's."
    )


def speed_points(atlas: Atlas) -> Points:
    """The share kept of the teacher's score against throughput."""
    return _points(atlas, "Score kept against speed", "times the throughput of dense", "speedup")


def size_points(atlas: Atlas) -> Points:
    """The share kept of the teacher's score against size."""
    return _points(atlas, "Score kept against size", "times smaller than dense", "size_gain")


def _fronts(atlas: Atlas) -> tuple[Points, ...]:
    """Both fronts, and the same again of what is near the teacher, where others would squeeze it."""
    near = replace(atlas, rows=tuple(row for row in atlas.rows if row.kept >= NEAR))
    known = (speed_points(atlas), size_points(atlas))
    if not 2 < len(near.rows) < len(atlas.rows):
        return known
    closer = (speed_points(near), size_points(near))
    return known + tuple(replace(item, title=f"{item.title}: {NEAR} % and more") for item in closer)


def _points(atlas: Atlas, title: str, label: str, field: str) -> Points:
    rows = [row for row in atlas.rows if not math.isnan(getattr(row, field))]
    gains = [float(getattr(row, field)) for row in rows]
    return Points(
        title=title,
        x_label=label,
        y_label=f"{atlas.metric}, % of the teacher's",
        x=tuple(round(gain, 2) for gain in gains),
        y=tuple(round(row.kept, 2) for row in rows),
        names=tuple(row.name for row in rows),
        groups=tuple(row.group for row in rows),
        front=front(rows, gains),
        is_log=bool(gains) and max(gains) > 5 * min(gains),
        note=f"{atlas.title}; {atlas.caption}, on {atlas.machine}."
        " The line joins what no other beats in both.",
    )


def _table(atlas: Atlas) -> Table:
    return Table(
        title="Every method", columns=COLUMNS, rows=tuple(_cells(row, atlas.metric) for row in atlas.rows)
    )


def _cells(row: Row, metric: str) -> tuple[str | float | None, ...]:
    low, high = row.speedup_spread
    interval = within(row.interval, metric)
    return (
        row.name,
        round(row.mean, 2),
        "–" if interval is None else "{:.2f} … {:.2f}".format(*interval),
        len(row.seeds),
        _rounded(row.kept, 2),
        round(row.same_labels, 2),
        round(row.same_probabilities, 2),
        round(row.megabytes, 2),
        _rounded(row.size_gain, 2),
        row.parameters,
        row.nonzero,
        _rounded(row.rows_per_second, 1),
        _rounded(row.speedup, 2),
        "–" if math.isnan(low) else f"{low:.2f} … {high:.2f}",
        _rounded(row.milliseconds, 3),
        _rounded(row.latency_gain, 2),
        _rounded(row.gpu_speedup, 2),
        _rounded(row.gpu_latency_gain, 2),
        round(row.seconds, 1),
        row.summary,
    )


def _rounded(value: float, digits: int) -> float | None:
    return None if math.isnan(value) else round(value, digits)


def _published(atlas: Atlas) -> Table:
    columns = (
        "method",
        "kept %",
        "throughput ×",
        "smaller ×",
        "published",
        "on",
        "published: kept",
        "published: faster",
        "published: smaller",
        "source",
    )
    rows = [
        (
            row.name,
            _rounded(row.kept, 1),
            _rounded(row.speedup, 1),
            _rounded(row.size_gain, 1),
            item.name,
            item.on,
            item.kept,
            item.faster,
            item.smaller,
            item.source,
        )
        for row in atlas.rows
        for item in row.published
    ]
    return Table(title="Beside what was published", columns=columns, rows=tuple(rows))


def _commands(atlas: Atlas) -> Table:
    rows: Sequence[tuple[str, str]] = [(row.name, command) for row in atlas.rows for command in row.commands]
    return Table(title="How each was made", columns=("method", "command"), rows=tuple(rows))
