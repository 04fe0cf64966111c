"""SVG as text: elements, numbers, widths of words. Everything that comes from outside is escaped here."""

import unicodedata
from dataclasses import dataclass
from html import escape

FONT_SIZE = 13.0
SMALL = 11.0
LINE_HEIGHT = 17.0
# Of the font size; the mean over English text in the wider sans-serif fonts.
LETTER_WIDTH = 0.6
# Signs that users' labels may hold, each as wide as those fonts draw it.
SIGNS, SIGN_WIDTH = "<>&@", 0.85


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """What a figure's marks need: so much room, and their elements."""

    width: float
    height: float
    body: str
    plot: str = ""
    """Where values lie, for a page's script: kind, left, top, width, height, and the ends of a level axis."""


def element(tag: str, *children: str, **attributes: str | float | None) -> str:
    """Write one element; `class_` and `fill_opacity` become class and fill-opacity, None is left out."""
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    return f"<{tag}{written}>{''.join(children)}</{tag}>" if children else f"<{tag}{written}/>"


def series_group(name: str, marks: str) -> str:
    """Hold the marks of one series together, so that a page's script can hide them."""
    return element("g", marks, data_series=name) if marks else ""


def text(words: str, x: float, y: float, **attributes: str | float | None) -> str:
    """Write words at a point."""
    return element("text", escape(words, quote=False), x=x, y=y, **attributes)


def short(value: float) -> str:
    """Write a coordinate with one decimal at most: a tenth of a pixel is not seen."""
    rounded = f"{value:.1f}".removesuffix(".0")
    return "0" if rounded == "-0" else rounded


def path(points: list[tuple[float, float]]) -> str:
    """Join points by straight lines."""
    return "M" + "L".join(f"{short(x)} {short(y)}" for x, y in points)


def width_of(words: str, size: float = FONT_SIZE) -> float:
    """Estimate how wide words are drawn; wide characters (CJK) take a whole square."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in words)
    signs = sum(letter in SIGNS for letter in words)
    return size * (LETTER_WIDTH * (len(words) - wide - signs) + wide + SIGN_WIDTH * signs)


def cut(words: str, width: float, size: float = FONT_SIZE) -> str:
    """Shorten words that are wider than `width`, with an ellipsis."""
    if width_of(words, size) <= width:
        return words
    # No more letters than this can fit; each is measured again and again below.
    words = words[: int(width / (size * LETTER_WIDTH)) + 1]
    while words and width_of(words + "…", size) > width:
        words = words[:-1]
    return words.rstrip() + "…"


def wrap(words: str, width: float, size: float = FONT_SIZE) -> list[str]:
    """Break words into lines that fit."""
    lines: list[str] = []
    for word in words.split():
        if lines and width_of(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(cut(word, width, size))
    return lines


def _attribute(value: str | float) -> str:
    return escape(value) if isinstance(value, str) else short(value)
