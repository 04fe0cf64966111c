"""What `bermo analyse --sentence` prints: tokens with their shares, the answer by layer, heads, contexts.

Every table fits 80 columns; the maps themselves are figures of the page.
"""

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.table import Table

from bermo.figures.data import Bars, Heat, Section
from bermo.figures.data import Table as Rows
from bermo.printing import visible

BAR = 24
WORD = 16
MOST_ROWS = 70


def print_sentences(section: Section, console: Console) -> None:
    """Print the tables of a section of sentences."""
    for part in parts(section):
        console.print(part, width=80)


def parts(section: Section) -> Iterator[RenderableType]:
    """Yield what is printed, in its order."""
    for figure in section.figures:
        match figure:
            case Rows():
                yield f"\n{figure.title}"
                yield _rows(figure)
            case Bars() if "mix" in figure.title.rpartition(": ")[2]:
                yield f"\n{figure.title}"
                yield _bars(figure)
            case Heat():
                yield f"\n{figure.title}"
                yield _most(figure)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index in (0, len(columns) - 1) else "right")
    return table


def _rows(figure: Rows) -> Table:
    has_share = figure.columns[1] == "share"
    table = _table(*figure.columns, *(("",) if has_share else ()))
    largest = max((float(row[1] or 0) for row in figure.rows), default=1.0) if has_share else 1.0
    for row in figure.rows[:MOST_ROWS]:
        cells = [_cell(cell) for cell in row]
        table.add_row(*cells, *((_bar(float(row[1] or 0) / (largest or 1.0)),) if has_share else ()))
    return table


def _bars(figure: Bars) -> Table:
    table = _table(figure.x_label.split(" (")[0], *figure.series, "")
    largest = max((abs(value or 0.0) for values in figure.series.values() for value in values), default=1.0)
    for index, name in enumerate(figure.names):
        values = [values[index] for values in figure.series.values()]
        table.add_row(name, *map(_cell, values), _bar((values[0] or 0.0) / (largest or 1.0)))
    return table


def _most(figure: Heat) -> Table:
    """Each token and what it attends to most."""
    table = _table("token", "share", "attends most to")
    for name, values in list(zip(figure.rows, figure.values, strict=True))[:MOST_ROWS]:
        best = max(range(len(values)), key=lambda k: values[k] or 0.0)
        table.add_row(_word(name), _cell(values[best]), f"{best + 1}: {_word(figure.columns[best])}")
    return table


def _cell(cell: str | float | None) -> str:
    if isinstance(cell, str):
        return visible(cell)
    return "" if cell is None else f"{cell:.3f}"


def _bar(share: float) -> str:
    return "█" * round(BAR * max(0.0, min(1.0, share)))


def _word(text: str) -> str:
    return visible(text if len(text) <= WORD else text[: WORD - 1] + "…")
