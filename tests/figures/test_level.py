"""Dots with level whiskers: a line for each value, whole names, arrows where the axis ends."""

import re
from dataclasses import replace

from bermo.figures.colours import LIGHT
from bermo.figures.data import Bars
from bermo.figures.describe import describe
from bermo.figures.draw import to_svg

LEVEL = Bars(
    title="t",
    x_label="",
    y_label="points",
    names=("the first comparison, of a name that no slot below a bar would hold", "second"),
    series={"one": (0.5, -1.0), "other": (None, 2.0)},
    errors={"one": ((0.0, 1.0), (-3.0, 1.0)), "other": ((float("nan"), float("nan")), (1.5, 2.5))},
    is_level=True,
)


def dots(svg: str) -> list[tuple[float, float]]:
    """Where the dots of the plot are; those of the legend are larger."""
    found = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="4"', svg)
    return [(float(x), float(y)) for x, y in found]


def test_each_value_has_a_line_of_its_own_and_stands_by_its_number() -> None:
    places = dots(to_svg(LEVEL))
    assert len(places) == 3
    assert len({y for _, y in places}) == 3
    (half, _), (minus_one, _), (two, _) = places
    assert abs((two - half) / (half - minus_one) - 1) < 0.01


def test_names_are_whole_in_as_many_lines_as_they_need() -> None:
    words = " ".join(re.findall(r'class="tick end">([^<]+)<', to_svg(LEVEL)))
    assert words == " ".join(LEVEL.names)


def test_a_whisker_that_leaves_the_axis_ends_with_an_arrow_at_its_end() -> None:
    whole, cut = to_svg(LEVEL), to_svg(replace(LEVEL, limits=(-2.0, 3.0)))
    (path,) = set(re.findall(r'd="([^"]+)" class="whisker"', cut)) & {
        d for d in re.findall(r'd="([^"]+)" class="whisker"', cut) if "L" in d
    }
    low = float(path[1:].split(" ")[0])
    assert low == min(float(x) for x in re.findall(r"M([\d.]+) ", path))
    assert not any("L" in d for d in re.findall(r'd="([^"]+)" class="whisker"', whole))


def test_every_dot_stands_by_its_number_whatever_the_limits() -> None:
    narrow = dots(to_svg(replace(LEVEL, limits=(0.0, 1.0))))
    assert [x for x, _ in narrow] == [x for x, _ in dots(to_svg(replace(LEVEL, limits=(-1.0, 2.0))))]


def test_zero_has_a_line_where_the_axis_has_it() -> None:
    assert 'class="front"' in to_svg(LEVEL)
    far = replace(LEVEL, series={"one": (1.1, 1.2)}, errors={})
    assert 'class="front"' not in to_svg(far)


def test_its_text_names_what_was_measured_alone() -> None:
    assert describe(LEVEL) == (
        "Dots of points. one: the first comparison, of a name that no slot below a bar would hold 0.5,"
        " second -1; other: second 2. Whiskers show intervals."
    )


def test_a_series_keeps_its_colour_beside_whatever_else_is_drawn() -> None:
    alone = replace(LEVEL, series={"other": LEVEL.series["other"]}, errors={}, colours={"other": 1})
    both = replace(LEVEL, colours={"other": 1})
    for drawn in (alone, both, replace(alone, is_level=False)):
        assert f'fill="{LIGHT[1]}"' in to_svg(drawn)
    assert f'fill="{LIGHT[0]}"' not in to_svg(alone)
