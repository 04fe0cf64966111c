"""A table of probes in the terminal, and how its numbers are rounded."""

import math
from collections.abc import Mapping

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from bermo.figures.data import Number, Table
from bermo.report.console import PlainConsole

SHORT: Mapping[str, str] = {
    "task": "",
    "best layer": "layer",
    "its test": "test",
    "last": "last",
    "layer": "",
    "UUAS": "UUAS",
    "least": "least",
    "most": "most",
    "root": "root",
    "distance Spearman": "distance",
    "depth Spearman": "depth",
    "mix": "mix",
    "centre": "centre",
    "expected": "expected",
    "compression": "compr.",
    "bag of words": "words",
    "untrained": "untrained",
    "selectivity": "select.",
    "plain": "plain",
    "difference": "±",
    "from": "from",
    "to": "to",
    "p": "p",
    "diverged": "diverged",
}
"""The columns that a terminal of 80 columns has room for, and what they are called there."""


def print_table(table: Table, console: Console | None = None) -> None:
    """Print a table with its groups as headings; all its columns are in figures.json."""
    console = console or PlainConsole()
    shown = RichTable(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    shown_columns = [at for at, name in enumerate(table.columns) if name in SHORT]
    for at in shown_columns:
        name = SHORT[table.columns[at]]
        shown.add_column(name, justify="right" if name else "left", no_wrap=True)
    group = None
    for row in table.rows:
        if row[0] != group:
            group = row[0]
            shown.add_row(Text(str(group).capitalize(), style="bold"))
        shown.add_row(*(_text(row[at]) for at in shown_columns))
    console.print(shown)
    console.print(f"\n{table.note}", markup=False)


def _text(value: str | Number) -> str:
    if value is None:
        return "–"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def rounded(value: float | None) -> Number:
    """Return a number with two digits, or nothing where there is none."""
    return None if value is None or math.isnan(value) else round(value, 2)


def rounded_ends(interval: tuple[float, float] | None) -> tuple[float, float]:
    """Return an interval with two digits, not a number where there is none."""
    low, high = interval or (math.nan, math.nan)
    return round(low, 2), round(high, 2)
