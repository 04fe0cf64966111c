"""Bars for each name, side by side, with whiskers for intervals.

A bar's length is its value, so bars stand on zero. Where intervals are given and zero lies far below all of
them, bars would hide the differences: then dots with whiskers are drawn, on an axis that need not start at
zero.
"""

from bermo.figures.axes import Axis, finite, linear_axis, number
from bermo.figures.colours import colours_of
from bermo.figures.data import Bars
from bermo.figures.frame import (
    PLOT_HEIGHT,
    RIGHT,
    WIDTH,
    Frame,
    empty_note,
    is_shown,
    label_height,
    left_margin,
    legend,
    level_label,
    level_names,
    named,
    names_height,
    slope_overhang,
    upright_axis,
)
from bermo.figures.svg import SMALL, Drawing, element, series_group, short, text, width_of

MAX_BAR = 46.0
MIN_BAR = 7.0
# All interval ends above this share of the highest one: zero is far.
FAR = 0.6


def draw_bars(figure: Bars, is_live: bool = False) -> Drawing:
    """Draw bars, or dots with whiskers where zero is far."""
    is_dots, y = _axis(figure)
    colours = colours_of(list(figure.series), figure.colours)
    num_series = len(figure.series)
    left = left_margin(y)
    least = len(figure.names) * (num_series * MIN_BAR + 6)
    plot = max(WIDTH - left - RIGHT, least)
    slot = plot / max(1, len(figure.names))
    left = max(left, slope_overhang(figure.names, slot))
    plot = max(WIDTH - left - RIGHT, least)
    slot = plot / max(1, len(figure.names))
    width = left + plot + RIGHT
    shown = named(list(figure.series), figure.y_label)

    def swatch(index: int, x: float, y: float) -> str:
        return element("rect", x=x - 7, y=y - 6, width=14, height=12, fill=colours[index])

    names, height = legend(shown, swatch, width)
    top = height + label_height(figure.y_label, width)
    frame = Frame(left=left, top=top, width=plot, height=PLOT_HEIGHT, y=y)
    drawn = {(k, s): _bar(figure, k, s, is_dots, slot, frame) for k, s in _places(figure)}
    marks = "".join(drawn.values())
    if is_live and num_series > 1:
        marks = "".join(
            series_group(name, "".join(mark for (_, order), mark in drawn.items() if order == s))
            for s, name in enumerate(figure.series)
        )
    room = names_height(figure.names, slot)
    label, below = level_label(frame, figure.x_label, frame.bottom + room + 14)
    words = level_names(figure.names, left, slot, frame.bottom)
    body = names + upright_axis(frame, figure.y_label) + (marks or empty_note(frame)) + words
    height = frame.bottom + room + below + 2
    return Drawing(width=width, height=height, body=body + label, plot=frame.place("bars"))


def _axis(figure: Bars) -> tuple[bool, Axis]:
    values = [value for numbers in figure.series.values() for value in finite(numbers)]
    ends = [end for errors in figure.errors.values() for pair in errors for end in finite(pair)]
    both = values + ends
    is_dots = bool(ends) and min(both) > FAR * max(both)
    return is_dots, linear_axis(both if is_dots else [0.0, *both])


def _places(figure: Bars) -> list[tuple[int, int]]:
    return [(k, s) for k in range(len(figure.names)) for s in range(len(figure.series))]


def _bar(figure: Bars, index: int, order: int, is_dots: bool, slot: float, frame: Frame) -> str:
    """Draw one bar or dot, its whisker, and its number where there is room for all of the figure's."""
    name, values = list(figure.series.items())[order]
    value = values[index]
    if value is None or not is_shown(value, frame.y):
        return ""
    colour = colours_of(list(figure.series), figure.colours)[order]
    thick = min(MAX_BAR, (slot - 6) / len(figure.series))
    middle = frame.left + slot * (index + 0.5) + thick * (order - (len(figure.series) - 1) / 2)
    ends = _ends(figure, name, index)
    mark = (_dot if is_dots else _block)(frame, value, middle, thick, colour)
    whisker = _whisker(middle, [frame.up(end) for end in ends], min(5.0, thick / 3)) if ends else ""
    # A dot is thinner than a whisker's rim.
    drawn = whisker + mark if is_dots else mark + whisker
    written, widest = number(value, 4), _widest(figure)
    room = slot / len(figure.series) - 4
    if is_dots and widest + 8 < room / 2:
        return drawn + text(written, middle + 8, frame.up(value) + 4, class_="tick")
    if is_dots or ends or widest >= max(thick, room):
        # Above a whisker, a number would read as its end.
        return drawn
    y = frame.up(value) + (13 if value < 0 else -4)
    return mark + text(written, middle, y, class_="tick mid")


def _widest(figure: Bars) -> float:
    """Return the width of the longest number: of some bars alone, numbers would look like a choice."""
    values = (value for numbers in figure.series.values() for value in finite(numbers))
    return max((width_of(number(value, 4), SMALL) for value in values), default=0.0)


def _ends(figure: Bars, name: str, index: int) -> list[float]:
    """Return the low and the high end of an interval, or nothing where there is none."""
    ends = finite(figure.errors[name][index]) if name in figure.errors else []
    return ends if len(ends) == 2 else []


def _dot(frame: Frame, value: float, middle: float, thick: float, colour: str) -> str:
    return element("circle", cx=middle, cy=frame.up(value), r=min(4.0, thick / 2), fill=colour)


def _block(frame: Frame, value: float, middle: float, thick: float, colour: str) -> str:
    zero, high, room = frame.up(0.0), frame.up(value), max(1.0, thick - 1.5)
    return element(
        "rect",
        x=middle - room / 2,
        y=min(zero, high),
        width=room,
        height=abs(zero - high),
        fill=colour,
    )


def _whisker(x: float, ends: list[float], half: float) -> str:
    low, high = ends
    left, right = short(x - half), short(x + half)
    line = f"M{short(x)} {short(low)}V{short(high)}M{left} {short(high)}H{right}M{left} {short(low)}H{right}"
    # The ink's own colour would be lost on a bar of the same lightness: it gets a rim of paper.
    return element("path", d=line, class_="rim") + element("path", d=line, class_="whisker")
