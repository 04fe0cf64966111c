"""The same curve of several findings in one figure: layers of two models side by side, on one scale."""

from collections.abc import Sequence
from dataclasses import replace

from bermo.figures import scale
from bermo.figures.data import Findings, Lines, Number, Section

MAX_CURVES = 8
"""More cannot be told apart by colour."""
TITLE = "Side by side"


def told_apart(findings: Sequence[Findings], names: Sequence[str]) -> list[Findings]:
    """Add the name of its folder to a title that stands on the page twice."""
    titles = [item.title for item in findings]
    return [
        replace(item, title=f"{item.title}: {name}") if titles.count(item.title) > 1 else item
        for item, name in zip(findings, names, strict=True)
    ]


def on_one_scale(findings: Sequence[Findings]) -> list[Findings]:
    """Give heat maps of the same thing, in sections of the same title, one scale over all findings."""
    sections = [section for item in findings for section in item.sections]
    scaled = {
        title: iter(scale.on_one_scale([f for s in sections if s.title == title for f in s.figures]))
        for title in {section.title for section in sections}
    }

    def drawn(section: Section) -> Section:
        return replace(section, figures=tuple(next(scaled[section.title]) for _ in section.figures))

    return [replace(item, sections=tuple(map(drawn, item.sections))) for item in findings]


def overlay(findings: Sequence[Findings], names: Sequence[str]) -> Findings | None:
    """Return the curves that two findings or more have in common, or None where there are none."""
    drawn: dict[tuple[str, ...], list[tuple[str, Lines]]] = {}
    for item, name in zip(findings, names, strict=True):
        for section in item.sections:
            for figure in section.figures:
                if isinstance(figure, Lines):
                    key = (section.title, figure.title, figure.x_label, figure.y_label)
                    drawn.setdefault(key, []).append((name, figure))
    sections: dict[str, list[Lines]] = {}
    for (title, *_), known in drawn.items():
        if len(known) > 1 and sum(len(figure.series) for _, figure in known) <= MAX_CURVES:
            sections.setdefault(title, []).append(_joined(known))
    if not sections:
        return None
    return Findings(
        title=TITLE,
        facts={},
        sections=tuple(
            Section(
                title=title, text="The same curves of several findings, on one scale.", figures=tuple(figures)
            )
            for title, figures in sections.items()
        ),
    )


def _joined(known: Sequence[tuple[str, Lines]]) -> Lines:
    """One figure of all curves over all places where one of them was measured."""
    places = tuple(sorted({x for _, figure in known for x in figure.x}))
    series: dict[str, tuple[Number, ...]] = {}
    for name, figure in known:
        for curve, values in figure.series.items():
            at = dict(zip(figure.x, values, strict=True))
            words = name if len(figure.series) == 1 else f"{name}: {curve}"
            series[words] = tuple(at.get(x) for x in places)
    first = known[0][1]
    return replace(first, x=places, series=series, bands={}, groups={}, is_joined=True)
