"""The room of a plot: its legend, its two axes with labels, and where a pair of values lies in it.

From the top down: legend, label of the upright axis, the plot, ticks and label of the level axis.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bermo.figures.axes import Axis
from bermo.figures.data import Number
from bermo.figures.svg import FONT_SIZE, LINE_HEIGHT, SMALL, cut, element, short, text, width_of, wrap

# Scaled to a phone of 390 pixels, letters stay readable.
WIDTH = 480.0
PLOT_HEIGHT = 220.0
RIGHT = 14.0
SLOPE = math.radians(40)
MAX_NAME = 190.0
MAX_LINES = 3


Swatch = Callable[[int, float, float], str]
"""Draws the sign of the series of that number around a point of the legend."""


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A plot's position in its drawing and its axes; a level axis of names has no `x`."""

    left: float
    top: float
    width: float
    height: float
    y: Axis
    x: Axis | None = None

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def place(self, kind: str) -> str:
        """Write where the plot is, and the numbers at its left and right ends."""
        ends = () if self.x is None else (self.x.low, self.x.high)
        places = map(short, (self.left, self.top, self.width, self.height))
        return " ".join([kind, *places, *(f"{end:.9g}" for end in ends)])

    def across(self, value: float) -> float:
        """Return the horizontal position of a value of x."""
        assert self.x is not None
        return self.left + self.width * self.x.share(value)

    def up(self, value: float) -> float:
        """Return the vertical position of a value of y."""
        return self.bottom - self.height * self.y.share(value)


def is_shown(value: Number, axis: Axis) -> bool:
    """Tell whether a value is a number that this axis can show."""
    return value is not None and math.isfinite(value) and (value > 0 or not axis.is_log)


def left_margin(y: Axis) -> float:
    """Return the room that the upright axis' ticks need."""
    return max(width_of(label, SMALL) for label in y.labels) + 10


def legend(names: Sequence[str], swatch: Swatch, width: float) -> tuple[str, float]:
    """Write names beside their swatches in as many rows as they need; returns it and its height."""
    marks, x, row = [], 0.0, 0
    for index, name in enumerate(names):
        shown = cut(name, width - 30)
        needed = 26 + width_of(shown) + 14
        if x and x + needed > width + 14:
            x, row = 0.0, row + 1
        y = 12 + row * LINE_HEIGHT
        marks.append(swatch(index, x + 10, y - 4.5))
        marks.append(text(shown, x + 25, y))
        x += needed
    return "".join(marks), (row + 1) * LINE_HEIGHT + 5 if names else 0.0


def named(names: Sequence[str], label: str) -> Sequence[str]:
    """Return the names that a legend must tell: none where the only one stands in the axis' label already."""
    return () if len(names) == 1 and f" {names[0]} " in f" {label} " else names


def upright_axis(frame: Frame, label: str) -> str:
    """Draw the upright axis: a faint line and a number at each tick, and its label above the plot."""
    right = frame.left + frame.width
    levels = [frame.up(tick) for tick in frame.y.ticks]
    lines = "".join(f"M{short(frame.left)} {short(y)}H{short(right)}" for y in levels)
    ticks = "".join(
        text(words, frame.left - 6, y + 4, class_="tick end")
        for words, y in zip(frame.y.labels, levels, strict=True)
    )
    return element("path", d=lines, class_="grid") + ticks + _upright_label(frame, label)


def label_height(label: str, width: float) -> float:
    """Return the room of an axis' label in as many lines as it needs."""
    return max(1, len(wrap(label, width - 8, 12))) * 15 + 10


def _upright_label(frame: Frame, label: str) -> str:
    lines = wrap(label, frame.left + frame.width - 8, 12)
    first = frame.top - 12 - 15 * (len(lines) - 1)
    return "".join(text(line, 0, first + 15 * k, class_="axis") for k, line in enumerate(lines))


def level_axis(frame: Frame, label: str) -> tuple[str, float]:
    """Draw the level axis of numbers: ticks, then its label in the middle; returns it and its height."""
    assert frame.x is not None
    marks = [
        element(
            "path", d=f"M{short(frame.left)} {short(frame.bottom)}h{short(frame.width)}", class_="whisker"
        )
    ]
    last = -math.inf
    for tick, words in zip(frame.x.ticks, frame.x.labels, strict=True):
        x, half = frame.across(tick), width_of(words, SMALL) / 2
        # The last one may be wide.
        middle = min(x, frame.left + frame.width + RIGHT - half)
        marks.append(element("path", d=f"M{short(x)} {short(frame.bottom)}v4", class_="whisker"))
        if middle - half > last + 4:
            marks.append(text(words, middle, frame.bottom + 17, class_="tick mid"))
            last = middle + half
    written, height = level_label(frame, label, frame.bottom + 36)
    return "".join(marks) + written, 22 + height


def level_label(frame: Frame, label: str, y: float) -> tuple[str, float]:
    """Write the level axis' label below the plot, in lines; returns it and its height."""
    lines = wrap(label, frame.width, 12)
    middle = frame.left + frame.width / 2
    written = "".join(text(line, middle, y + 15 * k, class_="axis mid") for k, line in enumerate(lines))
    return written, 15 * len(lines) + 6


def _level_lines(names: Sequence[str], slot: float) -> list[list[str]] | None:
    """Break names into lines that fit their slots, or return None where one would need too many."""
    broken = [wrap(name, slot - 4, SMALL) for name in names]
    is_whole = all(
        len(lines) <= MAX_LINES and " ".join(lines) == " ".join(name.split())
        for lines, name in zip(broken, names, strict=True)
    )
    return broken if is_whole else None


def names_height(names: Sequence[str], slot: float) -> float:
    """Return the room of names under slots of that width: in lines, or sloping where they are too wide."""
    lines = _level_lines(names, slot)
    if lines is not None:
        return 7 + 13.0 * max(map(len, lines), default=1)
    widest = max(width_of(name, SMALL) for name in names)
    return min(widest, MAX_NAME) * math.sin(SLOPE) + 18


def level_names(names: Sequence[str], left: float, slot: float, y: float) -> str:
    """Write a name under each slot: level or sloping; every second or third where slots are thin."""
    broken = _level_lines(names, slot)
    every = max(1, math.ceil(SMALL / slot)) if broken is None else 1
    marks = []
    for index in range(0, len(names), every):
        x = left + slot * (index + 0.5)
        if broken is not None:
            lines = enumerate(broken[index])
            marks += [text(line, x, y + 14 + 13 * k, class_="tick mid") for k, line in lines]
        else:
            words = cut(names[index], MAX_NAME, SMALL)
            turn = f"rotate(-40 {short(x + 3)} {short(y + 12)})"
            marks.append(text(words, x + 3, y + 12, class_="tick end", transform=turn))
    return "".join(marks)


def slope_overhang(names: Sequence[str], slot: float) -> float:
    """Return how far the first sloping name reaches to the left of its slot's middle."""
    if _level_lines(names, slot) is not None:
        return 0.0
    reaches = [
        min(width_of(name, SMALL), MAX_NAME) * math.cos(SLOPE) - slot * (index + 0.5)
        for index, name in enumerate(names)
    ]
    return max(0.0, *reaches)


def empty_note(frame: Frame) -> str:
    """Say in the plot that there is nothing to draw."""
    x, y = frame.left + frame.width / 2, frame.top + frame.height / 2
    return text("no numbers", x, y + FONT_SIZE / 2, class_="axis mid")
