"""Heat maps that are compared share one scale of ink."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from bermo.figures.axes import finite
from bermo.figures.data import Figure, Heat


def on_one_scale(figures: Sequence[Figure]) -> tuple[Figure, ...]:
    """Give one scale to heat maps of the same thing: their titles differ in the model's name only."""
    ends: dict[tuple[str, str], list[float]] = {}
    for figure in figures:
        if isinstance(figure, Heat):
            ends.setdefault(_thing(figure), []).extend(_values(figure))
    return tuple(
        replace(figure, limits=(min(ends[_thing(figure)]), max(ends[_thing(figure)])))
        if isinstance(figure, Heat) and ends[_thing(figure)]
        else figure
        for figure in figures
    )


def _thing(figure: Heat) -> tuple[str, str]:
    return figure.title.rpartition(": ")[2], figure.unit


def _values(figure: Heat) -> Iterable[float]:
    return figure.limits or finite(value for row in figure.values for value in row)
