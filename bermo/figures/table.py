"""Tables: as HTML to sort and to copy, and as a drawing for a file."""

from html import escape

from bermo.figures.axes import number
from bermo.figures.data import Number, Table
from bermo.figures.svg import SMALL, Drawing, cut, element, short, text, width_of

MAX_COLUMN = 220.0
ROW_HEIGHT = 20.0
DIGITS = 6
LONG = 30
"""Letters of a text that needs room to be read."""


def to_html_table(table: Table) -> str:
    """Write a table that sorts on a click on a column's name; numbers are right-aligned, None is empty."""
    is_number = [_is_numeric(table, index) for index in range(len(table.columns))]
    kinds = ["" if numeric else ' class="t"' for numeric in is_number]
    head = "".join(
        f'<th scope="col"{kind}><button type="button">{escape(name)}</button></th>'
        for name, kind in zip(table.columns, kinds, strict=True)
    )
    # HTML lets a row and a cell end where the next one begins; a table of curves is half as long so.
    rows = "\n".join(
        "<tr>"
        + "".join(
            f"<td{_kind(cell, kind)}>{escape(kept(written(cell)), quote=False)}"
            for cell, kind in zip(row, kinds, strict=True)
        )
        for row in table.rows
    )
    return (
        f"<table><caption>{escape(table.title, quote=False)}</caption>\n"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table>"
    )


def _kind(cell: str | Number, kind: str) -> str:
    """A long text has a class of its own: beside many columns it would be as narrow as its longest word."""
    return ' class="t long"' if isinstance(cell, str) and len(cell) > LONG else kind


def kept(words: str) -> str:
    """Keep a number and its percent sign on one line."""
    return words.replace(" %", "\N{NO-BREAK SPACE}%")


def written(cell: str | Number) -> str:
    """Write a cell: a text as it is, a number with six digits, whole ones in full."""
    if isinstance(cell, str):
        return cell
    if cell is not None and float(cell).is_integer() and abs(cell) < 1e15:
        return str(int(cell))
    return number(cell, DIGITS)


def draw_table(table: Table) -> Drawing:
    """Draw a table as words in columns."""
    cells = [[written(cell) for cell in row] for row in table.rows]
    widths = [
        min(MAX_COLUMN, max(width_of(words) for words in (name, *(row[k] for row in cells)))) + 14
        for k, name in enumerate(table.columns)
    ]
    starts = [sum(widths[:k]) for k in range(len(widths))]
    marks = []
    for line, row in enumerate([list(table.columns), *cells]):
        for k, words in enumerate(row):
            is_right = _is_numeric(table, k)
            x = starts[k] + (widths[k] - 14 if is_right else 0)
            kind = " ".join(["head"] * (line == 0) + ["end"] * is_right)
            marks.append(text(cut(words, widths[k] - 10), x, 15 + ROW_HEIGHT * line, class_=kind or None))
    rule = element("path", d=f"M0 {short(ROW_HEIGHT + 1)}H{short(sum(widths))}", class_="grid")
    height = ROW_HEIGHT * (len(cells) + 1) + SMALL / 2
    return Drawing(width=max(sum(widths), 120.0), height=height, body=rule + "".join(marks))


def _is_numeric(table: Table, index: int) -> bool:
    cells = [row[index] for row in table.rows if row[index] is not None]
    return bool(cells) and all(not isinstance(cell, str) for cell in cells)
