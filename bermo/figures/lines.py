"""Curves: a line for each series, its band behind it, dots where points are few; a group has one colour."""

from dataclasses import replace

from bermo.figures.axes import Axis, linear_axis, log_axis, number
from bermo.figures.colours import colours_of, dashes_of
from bermo.figures.data import Lines, Number
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
    level_axis,
    named,
    upright_axis,
)
from bermo.figures.svg import Drawing, element, path, series_group

# A curve of more points is a line without dots.
MAX_DOTS = 26


def y_axis(*figures: Lines) -> Axis:
    """Return one upright axis for all the figures: their curves and bands lie in it."""
    values: list[Number] = []
    for figure in figures:
        for numbers in figure.series.values():
            values += numbers
        for name, band in figure.bands.items():
            shown = zip(figure.series[name], band, strict=True)
            values += [end for value, ends in shown if value is not None for end in ends]
    return log_axis(values) if figures[0].is_log else linear_axis(values)


def draw_lines(figure: Lines, y: Axis | None = None, is_live: bool = False) -> Drawing:
    """Draw curves over numbers, on an upright axis of their own or the one given."""
    y = y or y_axis(figure)
    is_whole = all(float(value).is_integer() for value in figure.x)
    x = linear_axis(figure.x, is_tight=True, is_whole=is_whole, num_ticks=7)
    # A single value of x has no range that could be widened.
    if len(set(figure.x)) == 1:
        x = replace(x, ticks=figure.x[:1], labels=(number(figure.x[0]),))
    groups = {name: figure.groups.get(name, name) for name in figure.series}
    kinds = list(dict.fromkeys(groups.values()))
    colours, dashes = colours_of(kinds), dashes_of(kinds)
    shown = named(kinds, figure.y_label)

    def swatch(index: int, x: float, y: float) -> str:
        line, colour, dash = path([(x - 9, y), (x + 9, y)]), colours[index], dashes[index]
        return element("path", d=line, stroke=colour, stroke_width=3.0, stroke_dasharray=dash)

    names, height = legend(shown, swatch, WIDTH)
    left, top = left_margin(y), height + label_height(figure.y_label, WIDTH)
    frame = Frame(left=left, top=top, width=WIDTH - left - RIGHT, height=PLOT_HEIGHT, x=x, y=y)
    level, below = level_axis(frame, figure.x_label)
    kind_of = {name: kinds.index(kind) for name, kind in groups.items()}
    has_several = is_live and len(kinds) > 1
    bands = {name: _band(figure, name, colours[index], frame) for name, index in kind_of.items()}
    lines = {name: _curve(figure, name, colours[k], dashes[k], frame) for name, k in kind_of.items()}
    if has_several:
        bands = {name: series_group(groups[name], mark) for name, mark in bands.items()}
        lines = {name: series_group(groups[name], mark) for name, mark in lines.items()}
    marks = "".join([*bands.values(), *lines.values()]) or empty_note(frame)
    body = names + upright_axis(frame, figure.y_label) + level + marks
    return Drawing(width=WIDTH, height=frame.bottom + below, body=body, plot=frame.place("lines"))


def _pieces(figure: Lines, values: tuple[Number, ...], y: Axis) -> list[list[int]]:
    """Return the indices of a curve's points, in a new piece after each gap."""
    pieces: list[list[int]] = [[]]
    for index, value in enumerate(values):
        if is_shown(value, y):
            pieces[-1].append(index)
        elif pieces[-1] and not figure.is_joined:
            pieces.append([])
    return [piece for piece in pieces if piece]


def _curve(figure: Lines, name: str, colour: str, dash: str | None, frame: Frame) -> str:
    marks = []
    values = figure.series[name]
    kind = "thin" if name in figure.groups else "line"
    pieces = _pieces(figure, values, frame.y)
    num_points = sum(map(len, pieces))
    for piece in pieces:
        points = [(frame.across(figure.x[k]), frame.up(float(values[k] or 0.0))) for k in piece]
        if len(points) > 1:
            line = path(points)
            marks.append(element("path", d=line, class_=kind, stroke=colour, stroke_dasharray=dash))
        if len(points) == 1 or (num_points <= MAX_DOTS and kind == "line"):
            marks += [element("circle", cx=px, cy=py, r=2.6, fill=colour) for px, py in points]
    return "".join(marks)


def _band(figure: Lines, name: str, colour: str, frame: Frame) -> str:
    if name not in figure.bands:
        return ""
    ends, marks = figure.bands[name], []
    for piece in _pieces(figure, figure.series[name], frame.y):
        whole = [k for k in piece if all(is_shown(end, frame.y) for end in ends[k])]
        if len(whole) > 1:
            low = [(frame.across(figure.x[k]), frame.up(ends[k][0])) for k in whole]
            high = [(frame.across(figure.x[k]), frame.up(ends[k][1])) for k in whole]
            marks.append(element("path", d=path(low + high[::-1]) + "Z", class_="band", fill=colour))
        elif whole:
            # A band of one place has no width.
            at, (low_end, high_end) = frame.across(figure.x[whole[0]]), ends[whole[0]]
            line = path([(at, frame.up(low_end)), (at, frame.up(high_end))])
            marks.append(element("path", d=line, class_="line", stroke=colour))
    return "".join(marks)
