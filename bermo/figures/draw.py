"""Figures as SVG: for a page, which holds the style once, or as a file of its own.

to_svg(figure)               an <svg> element for a page with `colours.style` in it
write_svg(path, figure)      a file with title, note, paper and style in it, right on light and on dark
write_panels(path, …)        several figures in one file; curves of one row share their upright axis
"""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from bermo.figures import colours
from bermo.figures.arcs import draw_arcs
from bermo.figures.bars import draw_bars
from bermo.figures.data import Arcs, Bars, Figure, Heat, Lines, Points, Table, check
from bermo.figures.describe import describe
from bermo.figures.heat import draw_heat
from bermo.figures.level import draw_level
from bermo.figures.lines import draw_lines, y_axis
from bermo.figures.points import draw_points
from bermo.figures.svg import Drawing, element, short, text, wrap
from bermo.figures.table import draw_table
from bermo.files import write_text

MARGIN = 14.0
NAMESPACE = "http://www.w3.org/2000/svg"


def to_svg(figure: Figure) -> str:
    """Draw a figure as an <svg> element; its title is not drawn, but given as a description."""
    drawing = draw(figure, is_live=True)
    return _svg(drawing, figure.title, describe(figure), plot=drawing.plot)


def write_svg(path: Path, figure: Figure) -> None:
    """Draw a figure into a file of its own."""
    write_text(path, to_svg_file(figure))


def to_svg_file(figure: Figure) -> str:
    """Draw a figure as the text of an SVG file: with title, note, paper and style."""
    drawing = _titled(draw(figure), figure.title, figure.note)
    return _file(drawing, figure.title, describe(figure))


def write_panels(path: Path, title: str, rows: Sequence[Sequence[Figure]], note: str = "") -> None:
    """Draw figures in rows into one file; where all of a row are curves, they share their upright axis."""
    write_text(path, to_panels_file(title, rows, note))


def to_panels_file(title: str, rows: Sequence[Sequence[Figure]], note: str = "") -> str:
    """Draw figures in rows as the text of one SVG file."""
    parts, y, width = [], 0.0, 0.0
    for row in rows:
        x, height = 0.0, 0.0
        for figure, drawing in zip(row, _draw_row(row), strict=True):
            panel = _titled(drawing, figure.title, figure.note, size="head")
            parts.append(element("g", panel.body, transform=f"translate({short(x)} {short(y)})"))
            x, height = x + panel.width + 2 * MARGIN, max(height, panel.height)
        width, y = max(width, x - 2 * MARGIN), y + height + MARGIN
    whole = _titled(Drawing(width=width, height=y, body="".join(parts)), title, note)
    description = " ".join(f"{figure.title}: {describe(figure)}" for row in rows for figure in row)
    return _file(whole, title, description)


def draw(figure: Figure, is_live: bool = False) -> Drawing:
    """Draw a figure's marks; with `is_live`, so that a page's script can hide each series."""
    check(figure)
    match figure:
        case Lines():
            return draw_lines(figure, is_live=is_live)
        case Heat():
            return draw_heat(figure)
        case Bars(is_level=True):
            return draw_level(figure, is_live)
        case Bars():
            return draw_bars(figure, is_live)
        case Points():
            return draw_points(figure, is_live)
        case Arcs():
            return draw_arcs(figure)
        case Table():
            return draw_table(figure)


def _draw_row(row: Sequence[Figure]) -> list[Drawing]:
    curves = [figure for figure in row if isinstance(figure, Lines)]
    if len(curves) < len(row):
        return [draw(figure) for figure in row]
    shared = y_axis(*curves)
    return [draw_lines(figure, shared) for figure in curves]


def _titled(drawing: Drawing, title: str, note: str, size: str = "title") -> Drawing:
    """Write a title above a drawing and a note below it, broken into lines."""
    lines = wrap(title, drawing.width, 15)
    top = 20.0 * len(lines) + 6
    body = "".join(text(line, 0, 15 + 20 * k, class_=size) for k, line in enumerate(lines))
    body += element("g", drawing.body, transform=f"translate(0 {short(top)})")
    notes = wrap(note, drawing.width, 12)
    bottom = top + drawing.height + 12
    body += "".join(text(line, 0, bottom + 15 * k, class_="axis") for k, line in enumerate(notes))
    height = top + drawing.height + (15 * len(notes) + 4 if notes else 0)
    return Drawing(width=drawing.width, height=height, body=body)


def _svg(
    drawing: Drawing,
    title: str,
    description: str,
    style: str = "",
    margin: float = 2.0,
    plot: str = "",
) -> str:
    width, height = drawing.width + 2 * margin, drawing.height + 2 * margin
    description = f"{title}. {description}" if title else description
    words = element("title", escape(title)) + element("desc", escape(description))
    return element(
        "svg",
        words,
        style,
        drawing.body,
        xmlns=NAMESPACE,
        class_="figure",
        role="img",
        aria_label=description,
        data_plot=plot or None,
        width=width,
        height=height,
        viewBox=f"{short(-margin)} {short(-margin)} {short(width)} {short(height)}",
    )


def _file(drawing: Drawing, title: str, description: str) -> str:
    paper = element(
        "rect",
        x=-MARGIN,
        y=-MARGIN,
        class_="paper",
        width=drawing.width + 2 * MARGIN,
        height=drawing.height + 2 * MARGIN,
    )
    drawn = Drawing(width=drawing.width, height=drawing.height, body=paper + drawing.body)
    return _svg(drawn, title, description, element("style", colours.style("svg")), MARGIN) + "\n"
