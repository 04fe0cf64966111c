"""Two trees of one sentence: arcs above its words and arcs below, dashed where the other side has none."""

from bermo.figures.colours import colours_of
from bermo.figures.data import Arcs
from bermo.figures.frame import WIDTH, legend
from bermo.figures.svg import Drawing, element, short, text, width_of

GAP = 16.0
"""Between two words."""
STEP, MOST = 15.0, 110.0
"""An arc rises so far for each word that it passes, at most MOST."""
LINE = 26.0
"""The height of the words' line."""
DASHES = "5 3"


def draw_arcs(figure: Arcs) -> Drawing:
    """Draw the words, and the arcs of both sides in their colours."""
    middles, width = _places(figure.words)
    colours = colours_of(figure.names)

    def swatch(index: int, x: float, y: float) -> str:
        return element("path", d=f"M{short(x - 7)} {short(y)}h14", stroke=colours[index], stroke_width=2.0)

    names, top = legend(figure.names, swatch, max(width, WIDTH))
    highest = max((_rise(a, b) for a, b in figure.above), default=0.0)
    lowest = max((_rise(a, b) for a, b in figure.below), default=0.0)
    base = top + highest + 8
    words = "".join(
        text(word, x, base + 17, class_="mid") for word, x in zip(figure.words, middles, strict=True)
    )
    above = "".join(_arc(figure, arc, 0, middles, base, colours) for arc in figure.above)
    below = "".join(_arc(figure, arc, 1, middles, base + LINE, colours) for arc in figure.below)
    height = base + LINE + lowest + 6
    return Drawing(width=max(width, WIDTH), height=height, body=names + above + words + below)


def _places(words: tuple[str, ...]) -> tuple[list[float], float]:
    """Return the middle of each word, and the width of all."""
    middles, x = [], 4.0
    for word in words:
        wide = width_of(word)
        middles.append(x + wide / 2)
        x += wide + GAP
    return middles, x


def _rise(first: int, second: int) -> float:
    return min(MOST, STEP * abs(second - first) + 6)


def _arc(
    figure: Arcs, arc: tuple[int, int], side: int, middles: list[float], y: float, colours: list[str]
) -> str:
    first, second = (middles[at] for at in sorted(arc))
    sign = 1 if side else -1
    # The control points of a cubic curve stand a third higher than the curve rises.
    top = y + sign * _rise(*arc) * 4 / 3
    other = figure.above if side else figure.below
    return element(
        "path",
        d=f"M{short(first + 2)} {short(y)}C{short(first + 2)} {short(top)} {short(second - 2)} {short(top)}"
        f" {short(second - 2)} {short(y)}",
        fill="none",
        stroke=colours[side],
        stroke_width=1.6,
        stroke_dasharray=None if arc in other else DASHES,
    )
