"""Bars: what is written beside them."""

from dataclasses import replace

from bermo.figures.draw import to_svg
from tests.report.some import BARS


def test_bars_have_their_numbers_all_or_none() -> None:
    names = tuple("abcdef")
    values = (0.19, *(0.123456 + k / 1000 for k in range(5)))
    short = replace(BARS, names=names, series={"one": values, "other": values}, errors={})
    assert ">0.19<" not in to_svg(short)
    fits = replace(BARS, names=("a", "b"), series={"one": (0.19, 0.25)}, errors={})
    assert ">0.19<" in to_svg(fits)
    assert ">0.25<" in to_svg(fits)
