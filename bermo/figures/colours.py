"""Colours that eight series can be distinguished by, on light and on dark, with and without colour vision.

The eight follow Okabe and Ito (Color Universal Design, 2008), darkened for white and lightened for black;
beyond eight the line's dashes differ. Series that are a sequence (layer 1, 2, …) go from blue to orange,
which every kind of sight orders, and neighbours differ in their dashes. A grid's cell is one ink over the
paper, the thicker the more: the same figure is right on white and on black. Digits on it are black or white,
whichever is clearer there: a contrast of at least 4.58 : 1 (WCAG's least is 4.5), on light and on dark.

A drawing has the colours of light paper, and the style replaces them by variables that know of dark paper: a
reader of SVG without variables (Inkscape, LibreOffice, librsvg) shows the light ones, and not black on black.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

NUM_COLOURS = 8
DASHES = (None, "6 3", "2 3")
LIGHT = ("#0868ac", "#c14a00", "#00805a", "#a8398f", "#8a6d00", "#3a9bd0", "#5b5b5b", "#d1495b")
DARK = ("#5cb3ee", "#ff9a55", "#3fcf9f", "#e58fd0", "#ecd04a", "#9ad4f5", "#b9b9b9", "#ff8f9c")
RAMP = ((42, 111, 187), (118, 143, 150), (217, 119, 34))
LIGHT_PAPER = {
    "paper": "#ffffff",
    "ink": "#1d2329",
    "muted": "#5a646e",
    "grid": "#dfe3e8",
    "more": "#08519c",
    "less": "#b35806",
    "low": "#000000",
    "high": "#ffffff",
}
DARK_PAPER = {
    "paper": "#15191e",
    "ink": "#e8ebee",
    "muted": "#a3adb8",
    "grid": "#333b44",
    "more": "#8cc6ff",
    "less": "#ffb26b",
    "low": "#ffffff",
    "high": "#000000",
}
"""low and high: digits on a cell with little ink, and with much."""
MIDDLE = 0.179
"""The luminance on which black and white are equally clear: √(1.05 · 0.05) − 0.05."""


def style(root: str) -> str:
    """Return the CSS of figures under `root`: its colours on light, on dark, and what each class draws."""
    light, dark = _variables(LIGHT_PAPER, LIGHT), _variables(DARK_PAPER, DARK)
    return (
        f"{root}{{{light};color-scheme:light dark}}"
        f"@media(prefers-color-scheme:dark){{{root}{{{dark}}}}}"
        f"@media print{{{root}{{{light}}}}}{_light_first(_CLASSES)}{_series_rules()}"
    )


def digits_on(ink: str, share: float) -> str:
    """Return the class of digits on a cell with this share of an ink ("more" or "less")."""
    on_light, on_dark = luminance(LIGHT_PAPER, ink, share), luminance(DARK_PAPER, ink, share)
    match on_light < MIDDLE, on_dark < MIDDLE:
        case True, True:
            return "cell white"
        case True, False:
            return "cell high"
        case False, True:
            return "cell"
        case _:
            return "cell black"


def luminance(paper: dict[str, str], ink: str, share: float) -> float:
    """Return the relative luminance (WCAG) of a share of an ink over the paper."""
    channels = (
        share * int(paper[ink][at : at + 2], 16) / 255
        + (1 - share) * int(paper["paper"][at : at + 2], 16) / 255
        for at in (1, 3, 5)
    )
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def colours_of(names: Sequence[str], numbers: Mapping[str, int] | None = None) -> list[str]:
    """Return a colour for each series: that of its number, or in order."""
    if len(names) > 3 and _is_sequence(names):
        return [_between(index / (len(names) - 1)) for index in range(len(names))]
    return [LIGHT[(numbers or {}).get(name, index) % NUM_COLOURS] for index, name in enumerate(names)]


def dashes_of(names: Sequence[str]) -> list[str | None]:
    """Return the dashes of each series: plain for the first eight; in a sequence, whose neighbours have
    nearly one colour, each has other dashes than the next.
    """
    if len(names) > 3 and _is_sequence(names):
        return [DASHES[index % len(DASHES)] for index in range(len(names))]
    return [DASHES[index // NUM_COLOURS % len(DASHES)] for index in range(len(names))]


def _is_sequence(names: Iterable[str]) -> bool:
    """Tell whether names count up behind the same words: layer 1, layer 2, …"""
    parts = [re.fullmatch(r"(\D*)(\d+)(\D*)", name) for name in names]
    matches = [part.groups() for part in parts if part]
    counts = [int(count) for _, count, _ in matches]
    return (
        len(matches) == len(parts)
        and len({(before, after) for before, _, after in matches}) == 1
        and counts == sorted(counts)
    )


def _between(share: float) -> str:
    position = share * (len(RAMP) - 1)
    index = min(int(position), len(RAMP) - 2)
    low, high, rest = RAMP[index], RAMP[index + 1], position - index
    mixed = (round(a + (b - a) * rest) for a, b in zip(low, high, strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)


def _variables(paper: dict[str, str], series: Sequence[str]) -> str:
    numbered = {f"c{index}": colour for index, colour in enumerate(series)}
    return ";".join(f"--{name}:{colour}" for name, colour in (paper | numbered).items())


def _light_first(rules: str) -> str:
    """Write a variable's light colour before it: who knows no variables keeps the first."""
    return re.sub(
        r"(\w+):var\(--(\w+)\)", lambda found: f"{found[1]}:{LIGHT_PAPER[found[2]]};{found[0]}", rules
    )


def _series_rules() -> str:
    return "".join(
        f'.figure [{kind}="{colour}"]{{{kind}:var(--c{index})}}'
        for index, colour in enumerate(LIGHT)
        for kind in ("fill", "stroke")
    )


_CLASSES = (
    ".figure{font:13px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}"
    ".figure text{fill:var(--ink)}.figure .tick{fill:var(--muted);font-size:11px}"
    ".figure .axis{fill:var(--muted);font-size:12px}.figure .title{font-size:15px;font-weight:600}"
    ".figure .head{font-weight:600}.figure .grid{stroke:var(--grid);fill:none}"
    ".figure .line{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}"
    ".figure .thin{fill:none;stroke-width:1;stroke-opacity:.75;stroke-linejoin:round}"
    ".figure .band{stroke:none;fill-opacity:.17}.figure .whisker{stroke:var(--ink);fill:none}"
    ".figure .rim{stroke:var(--paper);stroke-width:3.5;fill:none}"
    ".figure .front{fill:none;stroke:var(--muted);stroke-dasharray:4 3}"
    ".figure .more{fill:var(--more)}.figure .less{fill:var(--less)}"
    ".figure .none{fill:none;stroke:var(--grid)}"
    ".figure .cell{font-size:11px;text-anchor:middle;fill:var(--low)}.figure .high{fill:var(--high)}"
    ".figure .white{fill:#ffffff}.figure .black{fill:#000000}.figure .name{font-size:11px}"
    ".figure .paper{fill:var(--paper)}.figure .end{text-anchor:end}.figure .mid{text-anchor:middle}"
)
