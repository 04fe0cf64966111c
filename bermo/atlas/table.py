"""An atlas in the terminal: one row a method, 80 columns wide."""

import math

from rich.console import Console
from rich.table import Table

from bermo.atlas.rows import Atlas, Row
from bermo.printing import number_of
from bermo.report.terminal import duration

COLUMNS = ("", "±", "kept", "loyal", "MB", "more", "faster", "train")


def print_atlas(atlas: Atlas, console: Console) -> None:
    """Print the table, what its columns mean, what failed and what was left out."""
    console.print(atlas_table(atlas))
    console.print(about_columns(atlas), style="dim")
    for sentence in remarks(atlas):
        console.print(f"\n{sentence}", markup=False)


def atlas_table(atlas: Atlas) -> Table:
    """One row a method, in the order of the methods."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("", no_wrap=True)
    for title in (atlas.metric, *COLUMNS[1:]):
        table.add_column(title, justify="right", no_wrap=True)
    for row in atlas.rows:
        table.add_row(row.name, *cells(row))
    return table


def cells(row: Row) -> tuple[str, ...]:
    """The texts of a row: score, half its interval, share kept, loyalty, size, gains, training."""
    interval = row.interval
    return (
        f"{row.mean:.2f}",
        "–" if interval is None else f"{(interval[1] - interval[0]) / 2:.2f}",
        "–" if math.isnan(row.kept) else f"{row.kept:.1f}%",
        f"{row.same_labels:.1f}%",
        f"{row.megabytes:.1f}",
        gain(row.speedup),
        gain(row.latency_gain),
        duration(row.seconds) if row.seconds else "–",
    )


def gain(value: float) -> str:
    """A ratio with as many digits as one reads."""
    if math.isnan(value):
        return "–"
    return f"{value:.1f}×" if value < 100 else f"{value:,.0f}×"


def about_columns(atlas: Atlas) -> str:
    """Say what the columns mean and where it was measured."""
    num_seeds = len(atlas.rows[0].seeds)
    return (
        f"{atlas.metric} on {number_of(atlas.num_rows, 'row')}, the mean of {number_of(num_seeds, 'seed')};"
        " ±: half of its 95 % interval."
        " kept: of its teacher's score. loyal: same answers as its teacher. more: times the throughput,"
        f" faster: times as short a call as dense, {atlas.caption}, on {atlas.machine}; baselines on texts."
        " train: own trainings of a seed, not the teacher's."
    )


def remarks(atlas: Atlas) -> list[str]:
    """What is to be said beside the table."""
    said = [] if atlas.unlabelled is None else [atlas.unlabelled]
    if atlas.noisy:
        said.append(
            f"The machine was too noisy for {', '.join(atlas.noisy)}. Do not trust their times: close"
            " what else runs, delete their bench.json, and run the same command again."
        )
    lost = [f"{row.name} ({row.diverged} of {len(row.seeds)})" for row in atlas.rows if row.diverged]
    if lost:
        said.append(f"Seeds diverged, and count: {', '.join(lost)}.")
    if atlas.left_out:
        said.append(f"Left out, since the budget had no time for them: {', '.join(atlas.left_out)}.")
    said += [f"{name} failed. {reason}" for name, reason in atlas.failed.items()]
    return said
