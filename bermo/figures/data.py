"""Figures as data: what was measured, before anybody draws it.

A measure returns figures; `report/` draws them, tabulates them and puts them on a page. A file of them is a
`Findings`:

    Findings = title + facts (name -> text) + sections, each a heading, a few sentences and its figures
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from bermo.errors import BermoError
from bermo.files import DAMAGED, read_sealed, write_sealed
from bermo.typed import check_fields

Number: TypeAlias = float | None
"""A measured value; None where there is none."""


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Curves over one axis; a band is the low and the high end of an interval around a curve.

    None leaves a gap, unless `is_joined`: then it only says that this curve was not measured at that x.
    """

    title: str
    x_label: str
    y_label: str
    x: tuple[float, ...]
    series: Mapping[str, tuple[Number, ...]]
    bands: Mapping[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    is_log: bool = False
    """Powers of ten are equally far apart on the upright axis; values at or below zero are left out."""
    is_joined: bool = False
    note: str = ""
    groups: Mapping[str, str] = field(default_factory=dict)
    """Curves of one group share a colour and one name in the legend, and are thin: the seeds of an arm."""


@dataclass(frozen=True, kw_only=True)
class Heat:
    """A coloured grid: rows × columns of numbers; `center` is the value that has no colour."""

    title: str
    x_label: str
    y_label: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    values: tuple[tuple[Number, ...], ...]
    unit: str = ""
    center: float | None = None
    limits: tuple[float, float] | None = None
    """The values with the least and the most colour, to compare grids; those of this grid unless given."""
    digits: int = 2
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Bars:
    """Bars side by side for each name; an error is the low and the high end of an interval."""

    title: str
    x_label: str
    y_label: str
    names: tuple[str, ...]
    series: Mapping[str, tuple[Number, ...]]
    errors: Mapping[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    note: str = ""
    is_level: bool = False
    """Dots with level whiskers in place of bars, a line for each, so that many and long names have room."""
    limits: tuple[float, float] | None = None
    """How far the axis of level whiskers reaches if its values do not need more; longer ones end with it."""
    colours: Mapping[str, int] = field(default_factory=dict)
    """The number of a series' colour, for figures that show the same things; the others go by their order."""


@dataclass(frozen=True, kw_only=True)
class Points:
    """Named points in the plane, coloured by group; `front` lists the points that a line joins."""

    title: str
    x_label: str
    y_label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    names: tuple[str, ...]
    groups: tuple[str, ...]
    front: tuple[int, ...] = ()
    is_log: bool = False
    """Powers of ten are equally far apart on the level axis; points at or below zero are left out."""
    is_named: bool = True
    """Whether names are written beside their points; a page shows them in any case under the pointer."""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Arcs:
    """The words of a sentence in a row, joined by arcs above and by others below, to be compared."""

    title: str
    words: tuple[str, ...]
    above: tuple[tuple[int, int], ...]
    below: tuple[tuple[int, int], ...]
    names: tuple[str, str]
    """What the arcs above and those below are."""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of texts and numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | Number, ...], ...]
    note: str = ""


Figure: TypeAlias = Lines | Heat | Bars | Points | Arcs | Table
KINDS: Mapping[str, type[Figure]] = {
    kind.__name__.lower(): kind for kind in (Lines, Heat, Bars, Points, Arcs, Table)
}


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading, results in sentences, and the figures that show it."""

    title: str
    text: str
    figures: tuple[Figure, ...]


def paragraphs(lines: Iterable[str]) -> str:
    """Return a section's text with a paragraph for each of the lines, such as one a model."""
    return "\n\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class Findings:
    """The results of a verb: `figures.json` in its folder."""

    title: str
    facts: Mapping[str, str]
    sections: tuple[Section, ...]


def as_table(figure: Figure) -> Table:
    """Return a figure's numbers as rows, to sort and to copy."""
    rows: Iterable[tuple[str | Number, ...]]
    match figure:
        case Table():
            return figure
        case Lines():
            names, values = _with_ends(figure.series, figure.bands)
            columns, rows = (figure.x_label, *names), zip(figure.x, *values, strict=True)
        case Bars():
            names, values = _with_ends(figure.series, figure.errors)
            columns, rows = (figure.x_label, *names), zip(figure.names, *values, strict=True)
        case Heat():
            columns = (figure.y_label, *figure.columns)
            rows = ((name, *row) for name, row in zip(figure.rows, figure.values, strict=True))
        case Arcs():
            columns = ("word", "joined with", *figure.names)
            rows = (
                (figure.words[a], figure.words[b], *("yes" if (a, b) in side else "no" for side in sides))
                for sides in [(figure.above, figure.below)]
                for a, b in sorted({*figure.above, *figure.below})
            )
        case Points():
            columns = ("name", "group", figure.x_label, figure.y_label)
            rows = zip(figure.names, figure.groups, figure.x, figure.y, strict=True)
    return Table(title=figure.title, columns=tuple(columns), rows=tuple(rows), note=figure.note)


def check(figure: Figure) -> None:
    """Refuse a figure whose numbers do not fit its axes."""
    lengths: list[tuple[str, int, int]]
    match figure:
        case Table():
            lengths = [("row", len(row), len(figure.columns)) for row in figure.rows]
        case Lines():
            unknown = figure.groups.keys() - figure.series.keys()
            if unknown:
                raise BermoError(
                    f'The figure "{figure.title}" groups {", ".join(sorted(unknown))}, which it does not'
                    f" have. Its series are {', '.join(figure.series)}."
                )
            curves = (*figure.series.items(), *figure.bands.items())
            lengths = [(f'series "{name}"', len(values), len(figure.x)) for name, values in curves]
        case Bars():
            curves = (*figure.series.items(), *figure.errors.items())
            lengths = [(f'series "{name}"', len(values), len(figure.names)) for name, values in curves]
        case Heat():
            lengths = [("rows of values", len(figure.values), len(figure.rows))]
            lengths += [("row", len(row), len(figure.columns)) for row in figure.values]
        case Arcs():
            lengths = [("names", len(figure.names), 2)]
            ends = [end for arc in (*figure.above, *figure.below) for end in arc]
            if any(not 0 <= end < len(figure.words) for end in ends):
                raise BermoError(f'The figure "{figure.title}" joins words that it does not have.')
        case Points():
            size = len(figure.x)
            lengths = [("y", len(figure.y), size), ("names", len(figure.names), size)]
            lengths += [("groups", len(figure.groups), size)]
            if any(not 0 <= index < size for index in figure.front):
                raise BermoError(f'The figure "{figure.title}" joins points that it does not have.')
    for what, got, expected in lengths:
        if got != expected:
            raise BermoError(
                f'The figure "{figure.title}" has {got} values where its axis has {expected} ({what}).'
            )


def _with_ends(
    series: Mapping[str, tuple[Number, ...]], ends: Mapping[str, tuple[tuple[float, float], ...]]
) -> tuple[list[str], list[tuple[Number, ...]]]:
    """Give every series two columns more, the ends of its intervals, where it has any."""
    names: list[str] = []
    values: list[tuple[Number, ...]] = []
    for name, numbers in series.items():
        names.append(name)
        values.append(numbers)
        # An end that is no number is None once it was written to a file.
        if any(end is not None and math.isfinite(end) for pair in ends.get(name, ()) for end in pair):
            names += [f"{name}, low", f"{name}, high"]
            pairs = list(zip(numbers, ends[name], strict=True))
            # What was not measured has no interval.
            values += [tuple(None if n is None else pair[side] for n, pair in pairs) for side in (0, 1)]
    return names, values


def write_findings(path: Path, findings: Findings) -> None:
    """Write findings as JSON, whole or not at all."""
    sections = [
        asdict(section)
        | {
            "figures": [
                {"kind": type(figure).__name__.lower(), **asdict(figure)} for figure in section.figures
            ]
        }
        for section in findings.sections
    ]
    write_sealed(path, asdict(findings) | {"sections": sections})


def read_findings(path: Path) -> Findings:
    """Read what `write_findings` wrote."""
    try:
        content = read_sealed(path)
        sections = tuple(
            Section(
                title=section["title"],
                text=section["text"],
                figures=tuple(_figure(dict(values)) for values in section["figures"]),
            )
            for section in content["sections"]
        )
        findings = Findings(title=content["title"], facts=content["facts"], sections=sections)
        check_fields(findings)
        for section in sections:
            check_fields(section)
        return findings
    except BermoError as error:
        raise BermoError(f"{path}: {error}") from None
    except DAMAGED as error:
        raise BermoError(f"{path} is no file of figures: {error}") from error


def _figure(values: dict[str, Any]) -> Figure:
    kind = KINDS[values.pop("kind")]
    figure = kind(**{name: _frozen(value) for name, value in values.items()})
    check_fields(figure)
    check(figure)
    return figure


def _frozen(value: Any) -> Any:
    """Turn JSON's lists back into tuples."""
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return {k: _frozen(v) for k, v in value.items()} if isinstance(value, dict) else value
