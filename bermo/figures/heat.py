"""A coloured grid: stronger ink for larger values; with a `center`, one ink above it and another below.

share of ink = (value − low) / (high − low)        or, around a center,  |value − center| / the greatest such
distance
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from bermo.figures.axes import finite, linear_axis, number
from bermo.figures.colours import digits_on
from bermo.figures.data import Heat, Number
from bermo.figures.frame import Frame, label_height, level_label, level_names, names_height, slope_overhang
from bermo.figures.svg import SMALL, Drawing, cut, element, short, text, width_of, wrap

WIDTH = 480.0
MIN_CELL, MAX_CELL, CELL_HEIGHT = 15.0, 64.0, 22.0
MAX_ROW_NAME = 150.0
# The least value still shows that it is there.
FAINTEST = 0.05
NUM_STEPS = 24


@dataclass(frozen=True, kw_only=True)
class Ink:
    """How values become ink: between two ends, or away from a center."""

    low: float
    high: float
    center: float | None

    def share(self, value: float) -> float:
        """Return how much ink a value gets, from the faintest to 1."""
        if self.center is None:
            strength = (value - self.low) / (self.high - self.low)
        else:
            strength = abs(value - self.center) / (self.high - self.center)
        return FAINTEST + (1 - FAINTEST) * min(1.0, max(0.0, strength))

    def name(self, value: float) -> str:
        """Return the class of the ink: below the center it is another one."""
        return "less" if self.center is not None and value < self.center else "more"


def draw_heat(figure: Heat) -> Drawing:
    """Draw the grid with its names, numbers where they fit, and the scale of its ink."""
    ink = _ink(figure)
    left = 8 + max((_name_width(name) for name in figure.rows), default=0.0)
    num_columns = max(1, len(figure.columns))
    cell = min(MAX_CELL, max(MIN_CELL, (WIDTH - left - 6) / num_columns))
    left = max(left, min(slope_overhang(figure.columns, cell), 90.0))
    cell = min(MAX_CELL, max(MIN_CELL, (WIDTH - left - 6) / num_columns))
    width = max(WIDTH, left + cell * num_columns + 6)
    fits = _numbers_fit(figure, cell)
    height = CELL_HEIGHT if fits else min(CELL_HEIGHT, max(MIN_CELL, cell))
    scale, top = _scale(figure, ink)
    top += label_height(figure.y_label, width)
    frame = Frame(
        left=left,
        top=top,
        width=cell * num_columns,
        height=height * len(figure.rows),
        y=linear_axis(()),
    )
    cells = _cells(figure, ink, frame) + (_numbers(figure, ink, frame) if fits else "")
    room = names_height(figure.columns, cell)
    label, below = level_label(frame, figure.x_label, frame.bottom + room + 13)
    names = level_names(figure.columns, left, cell, frame.bottom)
    body = scale + _row_names(figure, frame) + cells + names + label
    height = frame.bottom + room + below + 2
    return Drawing(width=width, height=height, body=body, plot=frame.place("heat"))


def _ink(figure: Heat) -> Ink:
    values = finite(value for row in figure.values for value in row) or [0.0]
    low, high = figure.limits or (min(values), max(values))
    if figure.center is not None:
        far = max(abs(low - figure.center), abs(high - figure.center)) or 1.0
        return Ink(low=figure.center - far, high=figure.center + far, center=figure.center)
    return Ink(low=low, high=high if high > low else low + 1.0, center=None)


def _scale(figure: Heat, ink: Ink) -> tuple[str, float]:
    """Draw the scale: steps of ink from the lowest value to the highest, its ends and its unit beside it."""
    low, high = (_written(end, figure.digits) for end in (ink.low, ink.high))
    start = width_of(low, SMALL) + 6
    size = 130 / NUM_STEPS
    marks = [text(low, 0, 12, class_="tick")]
    for step in range(NUM_STEPS):
        value = ink.low + (ink.high - ink.low) * (step + 0.5) / NUM_STEPS
        marks.append(
            element(
                "rect",
                x=start + size * step,
                y=3,
                width=size + 0.3,
                height=11,
                class_=ink.name(value),
                fill_opacity=f"{ink.share(value):.2f}",
            )
        )
    unit = f" {figure.unit}" if figure.unit else ""
    around = "" if ink.center is None else f", around {number(ink.center, 4)}"
    marks.append(text(f"{high}{unit}{around}", start + 136, 12, class_="tick"))
    return "".join(marks), 22.0


def _name_width(name: str) -> float:
    return min(width_of(name, SMALL), MAX_ROW_NAME)


def _row_names(figure: Heat, frame: Frame) -> str:
    lines = wrap(figure.y_label, frame.left + frame.width - 8, 12)
    first = frame.top - 9 - 15 * (len(lines) - 1)
    marks = [text(line, 0, first + 15 * k, class_="axis") for k, line in enumerate(lines)]
    for index, name in enumerate(figure.rows):
        y = frame.top + frame.height / len(figure.rows) * (index + 0.5) + 4
        marks.append(text(cut(name, MAX_ROW_NAME, SMALL), frame.left - 6, y, class_="tick end"))
    return "".join(marks)


def _numbers_fit(figure: Heat, cell: float) -> bool:
    written = [_written(value, figure.digits) for row in figure.values for value in row]
    return max((width_of(words, SMALL) for words in written), default=0.0) <= cell - 3


def _written(value: Number, digits: int) -> str:
    if value is None or not math.isfinite(value):
        return "–"
    # Adding 0 makes −0 a 0.
    return f"{round(value, digits) + 0:.{digits}f}".replace("-", "−")


def _places(figure: Heat, frame: Frame) -> Iterator[tuple[Number, float, float]]:
    """Walk over the cells: their value and their upper left corner."""
    width, height = _cell_size(figure, frame)
    for row, values in enumerate(figure.values):
        for column, value in enumerate(values):
            yield value, frame.left + width * column, frame.top + height * row


def _cell_size(figure: Heat, frame: Frame) -> tuple[float, float]:
    return frame.width / max(1, len(figure.columns)), frame.height / max(1, len(figure.rows))


def _cells(figure: Heat, ink: Ink, frame: Frame) -> str:
    """Draw all cells of the same ink as one path: a grid of 30 × 30 stays small."""
    width, height = _cell_size(figure, frame)
    box = f"h{short(width - 1)}v{short(height - 1)}h{short(1 - width)}z"
    boxes: dict[tuple[str, str | None], list[str]] = {}
    for value, x, y in _places(figure, frame):
        if value is None or not math.isfinite(value):
            key: tuple[str, str | None] = ("none", None)
        else:
            key = (ink.name(value), f"{ink.share(value):.2f}")
        boxes.setdefault(key, []).append(f"M{short(x + 0.5)} {short(y + 0.5)}{box}")
    return "".join(
        element("path", d="".join(paths), class_=name, fill_opacity=share)
        for (name, share), paths in boxes.items()
    )


def _numbers(figure: Heat, ink: Ink, frame: Frame) -> str:
    width, height = _cell_size(figure, frame)
    marks = []
    for value, x, y in _places(figure, frame):
        words, kind = _written(value, figure.digits), "cell"
        if value is not None and math.isfinite(value):
            kind = digits_on(ink.name(value), ink.share(value))
        marks.append(text(words, x + width / 2, y + height / 2 + 4, class_=kind))
    return "".join(marks)
