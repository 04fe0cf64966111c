"""Digits on a heat map's cells can be read, on light and on dark, whatever ink is below them."""

import pytest

from bermo.figures.colours import DARK_PAPER, LIGHT_PAPER, digits_on, luminance

WHITE, BLACK = 1.0, 0.0


@pytest.mark.parametrize("paper", [LIGHT_PAPER, DARK_PAPER], ids=["light", "dark"])
@pytest.mark.parametrize("ink", ["more", "less"])
def test_digits_have_a_contrast_of_4_5_on_every_cell(ink: str, paper: dict[str, str]) -> None:
    low, high = ((WHITE if paper[name] == "#ffffff" else BLACK) for name in ("low", "high"))
    colours = {"cell": low, "cell high": high, "cell white": WHITE, "cell black": BLACK}
    for percent in range(101):
        below = luminance(paper, ink, percent / 100)
        dark, light = sorted((below, colours[digits_on(ink, percent / 100)]))
        assert (light + 0.05) / (dark + 0.05) >= 4.5, percent


def test_luminance_is_wcags() -> None:
    assert luminance(LIGHT_PAPER, "more", 0.0) == pytest.approx(1.0)
    # #08519c, from the formula worked by hand.
    assert luminance(LIGHT_PAPER, "more", 1.0) == pytest.approx(0.0832, abs=2e-3)
