"""Named points: a shape and a colour for each group, names where they fit, a line for the front."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from itertools import pairwise

from bermo.figures.axes import Axis, linear_axis, log_axis
from bermo.figures.colours import NUM_COLOURS, colours_of
from bermo.figures.data import Number, Points
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
    upright_axis,
)
from bermo.figures.svg import SMALL, Drawing, cut, element, path, series_group, short, text, width_of

Box = tuple[float, float, float, float]
# Names need room.
HEIGHT = PLOT_HEIGHT + 60
RADIUS = 5.0
MAX_NAME = 120.0
FAR, NUM_TURNS = range(20, 121, 10), 12
"""How far away from its point a name of the front may stand, and in how many directions."""
ROOM = 0.03
"""The share of the plot that half a point is wide."""


def draw_points(figure: Points, is_live: bool = False) -> Drawing:
    """Draw points, their names where there is room, and the line of the front."""
    y = linear_axis(figure.y)
    x = _begun_before(log_axis(figure.x) if figure.is_log else linear_axis(figure.x, num_ticks=6), figure.x)
    groups = list(dict.fromkeys(figure.groups))
    colours = dict(zip(groups, colours_of(groups), strict=True))

    def swatch(index: int, x: float, y: float) -> str:
        return element("path", d=_shape(index, x, y), fill=colours[groups[index]])

    names, height = legend(groups if any(groups) else (), swatch, WIDTH)
    left, top = left_margin(y), height + label_height(figure.y_label, WIDTH)
    frame = Frame(left=left, top=top, width=WIDTH - left - RIGHT, height=HEIGHT, x=x, y=y)
    centres = {
        index: (frame.across(px), frame.up(py))
        for index, (px, py) in enumerate(zip(figure.x, figure.y, strict=True))
        if is_shown(px, x) and is_shown(py, y)
    }
    shapes = {
        index: element(
            "path",
            element("title", escape(figure.names[index])),
            d=_shape(groups.index(figure.groups[index]), *centre),
            fill=colours[figure.groups[index]],
        )
        for index, centre in centres.items()
    }
    level, below = level_axis(frame, figure.x_label)
    labels = _labels(figure, centres, frame) if figure.is_named else {}
    marks = _front(figure, centres) + "".join([*shapes.values(), *labels.values()])
    if is_live and len(groups) > 1:
        marks = _front(figure, centres) + "".join(
            series_group(
                group, "".join(mark for part in (shapes, labels) for mark in _of(figure, part, group))
            )
            for group in groups
        )
    body = names + upright_axis(frame, figure.y_label) + level + (marks or empty_note(frame))
    return Drawing(width=WIDTH, height=frame.bottom + below, body=body)


def _begun_before(axis: Axis, values: Sequence[Number]) -> Axis:
    """Let an axis begin before its first point, which would lie on the numbers of the upright axis."""
    if not any(is_shown(value, axis) and axis.share(float(value or 0.0)) < ROOM for value in values):
        return axis
    if axis.is_log:
        return replace(axis, low=axis.low * (axis.low / axis.high) ** ROOM)
    return replace(axis, low=axis.low - ROOM * (axis.high - axis.low))


def _of(figure: Points, marks: Mapping[int, str], group: str) -> list[str]:
    return [mark for index, mark in marks.items() if figure.groups[index] == group]


def _front_line(figure: Points, centres: dict[int, tuple[float, float]]) -> list[tuple[float, float]]:
    return sorted(centres[index] for index in figure.front if index in centres)


def _front_boxes(figure: Points, centres: dict[int, tuple[float, float]]) -> list[Box]:
    """Return small boxes along the front's line, for names to keep clear of."""
    line = _front_line(figure, centres)
    boxes = []
    for (x, y), (next_x, next_y) in pairwise(line):
        count = max(1, round(math.hypot(next_x - x, next_y - y) / 4))
        for k in range(count + 1):
            at_x, at_y = x + (next_x - x) * k / count, y + (next_y - y) * k / count
            boxes.append((at_x - 1, at_y - 1, at_x + 1, at_y + 1))
    return boxes


def _front(figure: Points, centres: dict[int, tuple[float, float]]) -> str:
    line = _front_line(figure, centres)
    return element("path", d=path(line), class_="front") if len(line) > 1 else ""


def _shape(group: int, x: float, y: float) -> str:
    """Return a circle, square, diamond or triangle around a point; groups of one colour have other shapes."""
    r = RADIUS
    match (group + group // NUM_COLOURS) % 4:
        case 0:
            arc = f"a{short(r)} {short(r)} 0 1 0"
            return f"M{short(x - r)} {short(y)}{arc} {short(2 * r)} 0{arc} {short(-2 * r)} 0Z"
        case 1:
            corners = [(x - r, y - r), (x + r, y - r), (x + r, y + r), (x - r, y + r)]
        case 2:
            wide = r * 1.3
            corners = [(x, y - wide), (x + wide, y), (x, y + wide), (x - wide, y)]
        case _:
            corners = [(x, y - 1.3 * r), (x + 1.2 * r, y + r), (x - 1.2 * r, y + r)]
    return path(corners) + "Z"


def _labels(figure: Points, centres: dict[int, tuple[float, float]], frame: Frame) -> dict[int, str]:
    """Write each name at the first free position around its point, those of the front first and, where
    nothing else is free, over its line or further away; the table has the names that are left out.
    """
    line = _front_boxes(figure, centres)
    taken: list[Box] = [(x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS) for x, y in centres.values()]
    marks = {}
    for index in sorted(centres, key=lambda index: (index not in figure.front, index)):
        words = cut(figure.names[index], MAX_NAME, SMALL)
        known = _boxes(*centres[index], width_of(words, SMALL), frame)
        boxes = [box for box in known if _is_inside(box, frame)]
        free = [box for box in boxes if not _is_over(box, taken)]
        beside = [box for box in free if not _is_over(box, line)]
        places, leader = beside, ""
        if index in figure.front and not beside:
            places = free or [
                box
                for box in _far_boxes(*centres[index], width_of(words, SMALL))
                if _is_inside(box, frame) and not _is_over(box, taken)
            ]
            leader = "" if free or not places else _leader(centres[index], places[0])
        if places:
            left, _, _, bottom = places[0]
            taken.append(places[0])
            marks[index] = leader + text(words, left, bottom - 3, class_="name")
    return marks


def _far_boxes(x: float, y: float, width: float) -> list[Box]:
    """Return positions for a name all around a point, the nearest first."""
    height = SMALL + 2
    turns = [math.tau * k / NUM_TURNS for k in range(NUM_TURNS)]
    middles = [
        (x + (away + width / 2) * math.cos(turn), y + away * math.sin(turn)) for away in FAR for turn in turns
    ]
    return [(a - width / 2, b - height / 2, a + width / 2, b + height / 2) for a, b in middles]


def _leader(centre: tuple[float, float], box: Box) -> str:
    """Return a line from a point to the nearest point of its name."""
    (x, y), (left, top, right, bottom) = centre, box
    return element(
        "path", d=path([centre, (min(max(x, left), right), min(max(y, top), bottom))]), class_="whisker"
    )


def _is_over(box: Box, others: Sequence[Box]) -> bool:
    return any(_overlap(box, other) for other in others)


def _boxes(x: float, y: float, width: float, frame: Frame) -> list[Box]:
    """Return the positions for a name around a point, the best first: right, left, above, below, corners;
    those above and below are moved aside where the drawing ends.
    """
    gap, height = RADIUS + 3, SMALL + 2
    middle = max(frame.left, min(x - width / 2, frame.left + frame.width + RIGHT - width))
    corners = [
        (x + gap, y - height / 2),
        (x - gap - width, y - height / 2),
        (middle, y - gap - height),
        (middle, y + gap),
        (x + gap - 2, y - gap - height + 4),
        (x - gap + 2 - width, y - gap - height + 4),
        (x + gap - 2, y + gap - 4),
        (x - gap + 2 - width, y + gap - 4),
    ]
    return [(left, top, left + width, top + height) for left, top in corners]


def _is_inside(box: Box, frame: Frame) -> bool:
    return (
        box[0] >= frame.left
        and box[2] <= frame.left + frame.width + RIGHT
        and box[1] >= frame.top - 4
        and box[3] <= frame.bottom
    )


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
