"""What an ELMo is: the sizes of its characters' filters and of its LSTMs, by name or one by one.

small, medium and original are the shapes of the released models (Peters et al. 2018); box is ours: its
vectors are as wide as those of the encoder in the package.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from bermo.fields import Rules, option

ElmoName = Literal["box", "small", "medium", "original"]
FILTER = re.compile(r"([1-9]\d?):([1-9]\d{0,4})")
_RELEASED = ("1:32", "2:32", "3:64", "4:128", "5:256", "6:512", "7:1024")


@dataclass(frozen=True, kw_only=True)
class ElmoShape:
    """The numbers that make an ELMo's shape."""

    filters: tuple[tuple[int, int], ...]
    """The width of each kind of filter, in characters, and how many there are."""
    highways: int
    cells: int
    projection: int
    """Units of one direction: vectors are twice as wide."""


def _filters(texts: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
    pairs = (text.split(":") for text in texts)
    return tuple((int(width), int(count)) for width, count in pairs)


ELMOS: Mapping[ElmoName, ElmoShape] = {
    "box": ElmoShape(
        filters=_filters(("1:32", "2:32", "3:64", "4:128")), highways=1, cells=512, projection=112
    ),
    "small": ElmoShape(filters=_filters(_RELEASED), highways=1, cells=1024, projection=128),
    "medium": ElmoShape(filters=_filters(_RELEASED), highways=1, cells=2048, projection=256),
    "original": ElmoShape(filters=_filters(_RELEASED), highways=2, cells=4096, projection=512),
}


@dataclass(frozen=True, kw_only=True)
class ElmoSpec:
    """The shape of an ELMo: one by name, with single sizes of its own."""

    name: ElmoName = option("box", "a shape of ELMo by name", "elmo-config")
    filters: tuple[str, ...] = option(
        (), "character filters, if not the shape's: WIDTH:NUMBER, with commas between", metavar="W:N,…"
    )
    characters: int = option(
        50, "characters of a word that are read, its two marks included", least=8, most=1000
    )
    highways: int | None = option(None, "highways over the filters, if not the shape's", least=0, most=100)
    cells: int | None = option(None, "cells of an LSTM, if not the shape's", least=1)
    projection: int | None = option(None, "units of one direction, if not the shape's", least=1)

    @property
    def shape(self) -> ElmoShape:
        """The named shape with the sizes that were given."""
        named = ELMOS[self.name]
        return ElmoShape(
            filters=_filters(self.filters) or named.filters,
            highways=named.highways if self.highways is None else self.highways,
            cells=self.cells or named.cells,
            projection=self.projection or named.projection,
        )

    def rules(self) -> Rules:
        wrong = [text for text in self.filters if FILTER.fullmatch(text) is None]
        wide = [] if wrong else [width for width, _ in self.shape.filters if width > self.characters]
        return [
            (
                not wrong,
                f'filters must be like 1:32,2:64 (characters : number), but got "{",".join(wrong)}".',
            ),
            (
                not wide,
                f"A filter of {max(wide, default=0)} characters does not fit into words of"
                f" {self.characters}. Raise --characters, or leave the filter out.",
            ),
        ]
