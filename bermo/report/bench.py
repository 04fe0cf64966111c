"""A bench as a table in the terminal and as figures: accuracy against latency, with the front drawn."""

from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table as RichTable

from bermo.figures.data import Findings, Points, Section, Table, write_findings
from bermo.figures.draw import write_svg
from bermo.printing import number_of
from bermo.ship.bench.measured import Bench, Measured
from bermo.ship.bench.noise import noise_sentence
from bermo.ship.bench.run import front
from bermo.ship.compress.sentence import Agreement

COLUMNS = ("MB", "score", "ms", "p95 ms", "faster", "rows/s", "more", "spread", "memory MB")
MODEL = "model"
NOT_SHOWN = ("p95 ms", "memory MB")
"""Columns that a terminal of 80 columns has no room for."""


def print_bench(result: Bench, console: Console) -> None:
    """Print the table, what its columns mean, and which numbers are not to be trusted."""
    console.print(bench_table(result))
    console.print(bench_caption(result), style="dim")
    noise = noise_sentence(result)
    if noise is not None:
        console.print(f"\n{noise}", markup=False)


def print_agreements(found: Mapping[str, Agreement], console: Console) -> None:
    """Print how far the vectors of small sentence encoders are those of their teacher."""
    table = RichTable(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("agreement with the teacher", overflow="fold")
    for title in ("cosine", "Spearman", "neighbours"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, item in found.items():
        table.add_row(
            name, f"{item.cosine:.4f}", *(f"{100 * x:.1f}" for x in (item.spearman, item.neighbours))
        )
    console.print()
    console.print(table)
    console.print(
        "On texts that were held out. Spearman: of the cosines of all pairs. neighbours: share of each text's"
        " ten nearest that stay.",
        style="dim",
    )


def bench_table(result: Bench) -> RichTable:
    """One row a candidate; "faster" is the gain in latency, "more" in throughput, over the first."""
    table = RichTable(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("", overflow="fold")
    for title in (name for name in COLUMNS if name not in NOT_SHOWN):
        shown = result.metric or title if title == "score" else title
        table.add_column(shown, justify="right", no_wrap=True)
    for row in result.rows:
        cells = zip(COLUMNS, _cells(result, row), strict=True)
        table.add_row(row.name, *(cell for name, cell in cells if name not in NOT_SHOWN))
    return table


def bench_caption(result: Bench) -> str:
    """Say what the columns mean and where it was measured."""
    (rows, length), (many, longer) = result.latency_shape, result.throughput_shape
    return (
        f"ms: median call, batch {rows}, length {length}. rows/s: batch {many}, length {longer}."
        f" {number_of(result.threads, 'thread')}, {number_of(result.spec.rounds, 'round')} in turns,"
        f" {result.machine}."
        ' spread: the least and the most of "more" in any round.'
        f" Ratios are against {result.rows[0].name}."
    )


def write_bench_figures(folder: Path, result: Bench, title: str) -> Findings:
    """Write figures.json and, where there are scores, front.svg; return the findings."""
    findings = bench_findings(result, title)
    write_findings(folder / "figures.json", findings)
    if result.metric is not None:
        write_svg(folder / "front.svg", points(result))
    return findings


def bench_findings(result: Bench, title: str) -> Findings:
    """Return a bench as figures."""
    sections = [
        Section(
            title="Side by side",
            text=" ".join(filter(None, (bench_caption(result), noise_sentence(result)))),
            figures=(_table(result),),
        ),
        Section(title="Every shape", text="", figures=(_shapes(result),)),
    ]
    if result.metric is not None:
        text = "The line joins the candidates that no other beats in both latency and score."
        sections.insert(1, Section(title="Score against latency", text=text, figures=(points(result),)))
    facts = {"machine": result.machine, "threads": str(result.threads), **result.versions}
    return Findings(title=title, facts=facts, sections=tuple(sections))


def points(result: Bench) -> Points:
    """Return score against median latency, coloured by form."""
    rows, length = result.latency_shape
    times = tuple(row.at(rows, length).p50 for row in result.rows)
    return Points(
        title="Score against latency",
        x_label=f"median milliseconds, batch {rows}, length {length}",
        y_label=str(result.metric),
        x=times,
        y=tuple(float(row.score or 0) for row in result.rows),
        names=tuple(row.name for row in result.rows),
        groups=tuple(f"{row.form} {row.precision}" for row in result.rows),
        front=front(result),
        is_log=max(times) > 10 * min(times),
        note=bench_caption(result),
    )


def _table(result: Bench) -> Table:
    columns = (MODEL, "MB", result.metric or "score", "ms", "p95 ms", "faster ×", "rows/s", "more ×")
    spread = ("spread, least", "spread, most", "memory MB")
    rows = tuple((row.name, *_numbers(result, row)) for row in result.rows)
    return Table(title="Side by side", columns=(*columns, *spread), rows=rows)


def _shapes(result: Bench) -> Table:
    columns = (MODEL, "batch", "length", "calls", "p50 ms", "p95 ms", "p99 ms", "rows/s")
    rows = tuple(
        (
            row.name,
            t.batch,
            t.length,
            t.calls,
            round(t.p50, 3),
            round(t.p95, 3),
            round(t.p99, 3),
            round(t.rows_per_second, 2),
        )
        for row in result.rows
        for t in row.timings
    )
    return Table(title="Every shape", columns=columns, rows=rows)


def _numbers(result: Bench, row: Measured) -> tuple[float | None, ...]:
    """The cells of the page: numbers, so that they stand under each other and are sorted by value."""
    one, many = row.at(*result.latency_shape), row.at(*result.throughput_shape)
    least, most = result.spread(row, result.throughput_shape)
    return (
        round(row.megabytes, 1),
        None if row.score is None else round(row.score, 2),
        round(one.p50, 2),
        round(one.p95, 2),
        round(result.latency_gain(row), 2),
        round(many.rows_per_second, 1),
        round(result.speedup(row), 2),
        round(least, 2),
        round(most, 2),
        round(row.peak_memory_mb),
    )


def _cells(result: Bench, row: Measured) -> tuple[str, ...]:
    one, many = row.at(*result.latency_shape), row.at(*result.throughput_shape)
    return (
        f"{row.megabytes:.1f}",
        "–" if row.score is None else f"{row.score:.2f}",
        f"{one.p50:.2f}",
        f"{one.p95:.2f}",
        f"{result.latency_gain(row):.2f}×",
        f"{many.rows_per_second:.1f}",
        f"{result.speedup(row):.2f}×",
        "{:.2f}…{:.2f}".format(*result.spread(row, result.throughput_shape)),
        f"{row.peak_memory_mb:.0f}",
    )
