"""A figure as text for readers who cannot see it: its axes, and where each series begins, ends and peaks."""

from collections.abc import Sequence

from bermo.figures.axes import finite, number
from bermo.figures.data import Arcs, Bars, Figure, Heat, Lines, Number, Points, Table

# Series that are described one by one; the table has the others.
MAX_DESCRIBED = 8
DIGITS = 4


def describe(figure: Figure) -> str:
    """Return the text alternative of a figure."""
    match figure:
        case Lines():
            return _lines(figure)
        case Heat():
            return _heat(figure)
        case Bars():
            return _bars(figure)
        case Points():
            return _points(figure)
        case Arcs():
            return _arcs(figure)
        case Table():
            return f"Table of {len(figure.rows)} rows: {', '.join(figure.columns)}."


def _lines(figure: Lines) -> str:
    ends = _range(figure.x)
    sentences = [
        f"{name}: {_course(figure.x, values)}"
        for name, values in figure.series.items()
        if name not in figure.groups
    ]
    for group in dict.fromkeys(figure.groups.values()):
        curves = [figure.series[name] for name, kind in figure.groups.items() if kind == group]
        last = [known[-1] for known in map(finite, curves) if known]
        sentences.append(f"{group}, {len(curves)} curves: the last values are {_range(last)}")
    bands = " Bands show intervals." if figure.bands else ""
    scale = " The upright axis is logarithmic." if figure.is_log else ""
    return f"Curves of {figure.y_label} over {figure.x_label} {ends}. {_few(sentences)}{bands}{scale}"


def _course(x: Sequence[float], values: Sequence[Number]) -> str:
    """Say where a curve begins and ends, and its extremes where they lie between."""
    shown = [(value, at) for value, at in zip(values, x, strict=True) if finite([value])]
    if not shown:
        return "no numbers"
    numbers = [(value, at) for value, at in shown if value is not None]
    low, high = min(numbers), max(numbers)
    words = f"from {number(numbers[0][0], DIGITS)} to {number(numbers[-1][0], DIGITS)}"
    for name, end in (("lowest", low), ("highest", high)):
        if end not in (numbers[0], numbers[-1]):
            words += f", {name} {number(end[0], DIGITS)} at {number(end[1], DIGITS)}"
    return words


def _heat(figure: Heat) -> str:
    cells = [
        (value, row, column)
        for row, numbers in zip(figure.rows, figure.values, strict=True)
        for column, value in zip(figure.columns, numbers, strict=True)
        if value is not None and finite([value])
    ]
    size = (
        f"Grid of {len(figure.rows)} rows ({figure.y_label})"
        f" and {len(figure.columns)} columns ({figure.x_label})"
    )
    if not cells:
        return f"{size}, without numbers."
    ends = [
        f"{name} {number(value, DIGITS)} at {row}, {column}"
        for name, (value, row, column) in (("lowest", min(cells)), ("highest", max(cells)))
    ]
    unit = f", in {figure.unit}" if figure.unit else ""
    return f"{size}{unit}; {', '.join(ends)}."


def _bars(figure: Bars) -> str:
    sentences = []
    for series, values in figure.series.items():
        pairs = zip(figure.names, values, strict=True)
        # A level figure has a line for what was measured alone.
        shown = [(name, value) for name, value in pairs if not figure.is_level or finite([value])]
        words = ", ".join(f"{name} {number(value, DIGITS) or 'none'}" for name, value in shown)
        sentences.append(f"{series}: {words}")
    whiskers = " Whiskers show intervals." if figure.errors else ""
    each = f" for each {figure.x_label}" if figure.x_label else ""
    kind = "Dots" if figure.is_level else "Bars"
    return f"{kind} of {figure.y_label}{each}. {_few(sentences)}{whiskers}"


def _points(figure: Points) -> str:
    front = [figure.names[index] for index in figure.front]
    line = f" A line joins {', '.join(front)}." if front else ""
    return (
        f"{len(figure.names)} points: {figure.x_label} {_range(figure.x)}, "
        f"{figure.y_label} {_range(figure.y)}.{line}"
    )


def _arcs(figure: Arcs) -> str:
    above, below = set(figure.above), set(figure.below)
    return (
        f"The sentence: {' '.join(figure.words)}. {figure.names[0]}: {len(above)} arcs;"
        f" {figure.names[1]}: {len(below)} arcs, of which {len(above & below)} are the same."
    )


def _range(values: Sequence[float]) -> str:
    numbers = finite(values)
    if not numbers:
        return "without numbers"
    return f"from {number(min(numbers), DIGITS)} to {number(max(numbers), DIGITS)}"


def _few(sentences: list[str]) -> str:
    rest = f"; and {len(sentences) - MAX_DESCRIBED} more" if len(sentences) > MAX_DESCRIBED else ""
    return "; ".join(sentences[:MAX_DESCRIBED]) + rest + "."
