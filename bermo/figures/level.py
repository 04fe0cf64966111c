"""Dots with level whiskers, one below the other: each name on the left, a line for each series that has it.

Names are read level whatever their length, and many comparisons of a few series stay apart. A whisker that
leaves the axis ends with an arrow.
"""

from bermo.figures.axes import Axis, finite, linear_axis
from bermo.figures.colours import colours_of
from bermo.figures.data import Bars
from bermo.figures.frame import (
    RIGHT,
    WIDTH,
    Frame,
    empty_note,
    is_shown,
    label_height,
    legend,
    level_axis,
    named,
)
from bermo.figures.svg import SMALL, Drawing, cut, element, series_group, short, text, width_of, wrap

MAX_NAMES = 190.0
LINE, LETTERS, GAP = 15.0, 13.0, 7.0
"""Heights: of a dot's line, of a line of a name, and between two names."""
RADIUS, CAP = 4.0, 4.0


def draw_level(figure: Bars, is_live: bool = False) -> Drawing:
    """Draw a dot and its whisker for each value of each name."""
    colours = colours_of(list(figure.series), figure.colours)
    lines = [wrap(name, MAX_NAMES, SMALL) for name in figure.names]
    left = 10 + max((width_of(line, SMALL) for own in lines for line in own), default=0.0)

    def swatch(index: int, x: float, y: float) -> str:
        return element("circle", cx=x, cy=y, r=RADIUS + 1, fill=colours[index])

    words, top = legend(named(list(figure.series), figure.y_label), swatch, WIDTH)
    top += label_height(figure.x_label, WIDTH) if figure.x_label else GAP
    heights = [
        GAP + max(LETTERS * len(own), LINE * len(_series_of(figure, index)))
        for index, own in enumerate(lines)
    ]
    frame = Frame(
        left=left,
        top=top,
        width=WIDTH - left - RIGHT,
        height=sum(heights) or LINE,
        x=_axis(figure),
        y=linear_axis(()),
    )
    names, marks, y = [], dict.fromkeys(figure.series, ""), top
    for index, (own, height) in enumerate(zip(lines, heights, strict=True)):
        first = y + (height - LETTERS * len(own)) / 2 + 10
        names += [text(line, left - 8, first + LETTERS * k, class_="tick end") for k, line in enumerate(own)]
        known = _series_of(figure, index)
        for order, name in enumerate(known):
            at = y + height / 2 + LINE * (order - (len(known) - 1) / 2)
            marks[name] += _mark(figure, name, index, colours[list(figure.series).index(name)], at, frame)
        y += height
    axis, below = level_axis(frame, figure.y_label)
    drawn = [series_group(name, own) if is_live else own for name, own in marks.items()]
    above = text(cut(figure.x_label, WIDTH - 8, 12), 0, frame.top - 10, class_="axis")
    body = (
        words
        + (above if figure.x_label else "")
        + _grid(frame)
        + axis
        + "".join(names)
        + ("".join(drawn) or empty_note(frame))
    )
    return Drawing(width=WIDTH, height=frame.bottom + below, body=body)


def _series_of(figure: Bars, index: int) -> list[str]:
    """Return the series that have a value for a name."""
    return [name for name, values in figure.series.items() if finite([values[index]])]


def _axis(figure: Bars) -> Axis:
    """Cover all values, and all of the whiskers or what the limits leave of them."""
    values = [value for numbers in figure.series.values() for value in numbers]
    ends = [end for pairs in figure.errors.values() for pair in pairs for end in pair]
    return linear_axis([*values, *(figure.limits or ends)])


def _grid(frame: Frame) -> str:
    """Draw a faint line at each tick and a stronger one at zero."""
    assert frame.x is not None
    lines = "".join(
        f"M{short(frame.across(tick))} {short(frame.top)}v{short(frame.height)}" for tick in frame.x.ticks
    )
    zero = f"M{short(frame.across(0.0))} {short(frame.top)}v{short(frame.height)}"
    is_inside = frame.x.low <= 0 <= frame.x.high
    return element("path", d=lines, class_="grid") + (
        element("path", d=zero, class_="front") if is_inside else ""
    )


def _mark(figure: Bars, name: str, index: int, colour: str, y: float, frame: Frame) -> str:
    value = figure.series[name][index]
    assert value is not None
    assert frame.x is not None
    if not is_shown(value, frame.x):
        return ""
    ends = finite(figure.errors[name][index]) if name in figure.errors else []
    whisker = _whisker(ends[0], ends[1], y, frame) if len(ends) == 2 else ""
    return whisker + element("circle", cx=frame.across(value), cy=y, r=RADIUS, fill=colour)


def _whisker(low: float, high: float, y: float, frame: Frame) -> str:
    """Draw a level line with a cap at each end, or an arrow where it goes on beyond the axis."""
    assert frame.x is not None
    ends = [frame.across(min(max(end, frame.x.low), frame.x.high)) for end in (low, high)]
    line = f"M{short(ends[0])} {short(y)}H{short(ends[1])}"
    for x, is_cut, inwards in ((ends[0], low < frame.x.low, CAP), (ends[1], high > frame.x.high, -CAP)):
        if is_cut:
            line += (
                f"M{short(x + inwards)} {short(y - CAP)}L{short(x)} {short(y)}l{short(inwards)} {short(CAP)}"
            )
        else:
            line += f"M{short(x)} {short(y - CAP)}v{short(2 * CAP)}"
    return element("path", d=line, class_="whisker")
