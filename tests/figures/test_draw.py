"""Drawings: each has a title, labelled axes and a description; positions match numbers; text is escaped."""

import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bermo.errors import BermoError
from bermo.figures.colours import DARK, DARK_PAPER, LIGHT, LIGHT_PAPER, colours_of, dashes_of
from bermo.figures.data import Bars, Figure, Heat, Lines, Points
from bermo.figures.draw import to_svg, to_svg_file, write_panels, write_svg
from bermo.figures.svg import cut, width_of
from bermo.figures.table import to_html_table
from tests.report.some import ARCS, BARS, FIGURES, HEAT, LINES, NASTY, POINTS, TABLE

SVG = "{http://www.w3.org/2000/svg}"
every_kind = pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: type(figure).__name__)


def parse(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def texts(root: ElementTree.Element) -> list[str]:
    return [item.text or "" for item in root.iter(f"{SVG}text")]


def paths(svg: str, kind: str) -> list[str]:
    elements = parse(svg).iter(f"{SVG}path")
    return [item.get("d", "") for item in elements if item.get("class") == kind]


def corners(path: str) -> list[tuple[float, float]]:
    return [tuple(map(float, pair.split())) for pair in re.findall(r"[\d.-]+ [\d.-]+", path)]  # type: ignore[misc]


@every_kind
def test_a_drawing_is_whole_xml_and_tells_itself_in_words(figure: Figure) -> None:
    root = parse(to_svg(figure))
    assert root.get("role") == "img"
    assert root.findtext(f"{SVG}title") == figure.title
    description = root.get("aria-label") or ""
    assert description.startswith(figure.title)
    assert len(description) > len(figure.title) + 25
    assert root.findtext(f"{SVG}desc") == description


@every_kind
def test_axes_are_labelled(figure: Figure) -> None:
    written = texts(parse(to_svg(figure)))
    for label in (getattr(figure, name, "") for name in ("x_label", "y_label")):
        assert not label or label in written


@every_kind
def test_the_same_figure_gives_the_same_bytes(figure: Figure) -> None:
    assert to_svg(figure) == to_svg(replace(figure))


@every_kind
def test_everything_lies_inside_the_drawing(figure: Figure) -> None:
    root = parse(to_svg(figure))
    left, top, width, height = map(float, root.get("viewBox", "").split())
    for item in root.iter(f"{SVG}text"):
        x, y = float(item.get("x", "")), float(item.get("y", ""))
        assert left <= x <= left + width, item.text
        assert top <= y <= top + height, item.text


@every_kind
def test_a_file_has_title_style_and_paper_of_its_own(figure: Figure, tmp_path: Path) -> None:
    write_svg(tmp_path / "figure.svg", figure)
    content = (tmp_path / "figure.svg").read_text(encoding="utf-8")
    root = parse(content)
    assert figure.title in texts(root)
    assert "prefers-color-scheme:dark" in (root.findtext(f"{SVG}style") or "")
    assert "var(--paper)" in content
    assert to_svg_file(figure) == content


@every_kind
def test_a_reader_without_variables_has_the_colours_of_light_paper(figure: Figure) -> None:
    root = parse(to_svg_file(figure))
    style = (root.findtext(f"{SVG}style") or "").split("@media print")[1]
    rules = [rule.partition("{")[::2] for rule in style.split("}")]
    for name, rule in rules:
        plain = {part.partition(":")[0] for part in rule.split(";") if "var(" not in part}
        variable = {part.partition(":")[0] for part in rule.split(";") if "var(" in part}
        assert "[" in name or variable <= plain, name
    assert not any("var(" in value for item in root.iter() for value in item.attrib.values())


def test_a_curve_goes_through_its_values_and_stops_at_a_gap() -> None:
    first, second, other = map(corners, paths(to_svg(LINES), "line"))
    assert (len(first), len(second), len(other)) == (2, 2, 5)
    everything = first + second + other
    x0, y0 = everything[0]
    # One step of x and one unit of y in pixels, from two points; all others must lie where these say.
    step, unit = first[1][0] - x0, y0 - first[1][1]
    expected = [(0, 1.0), (1, 2.0), (3, 3.0), (4, 2.5), *enumerate((0.5, 0.4, 0.3, 0.2, 0.1))]
    for (px, py), (x, y) in zip(everything, expected, strict=True):
        assert px == pytest.approx(x0 + step * x, abs=0.21)
        assert py == pytest.approx(y0 - unit * (y - 1.0), abs=0.21)


def test_a_joined_curve_passes_over_what_was_not_measured() -> None:
    joined = [corners(path) for path in paths(to_svg(replace(LINES, is_joined=True)), "line")]
    assert [len(path) for path in joined] == [4, 5]


def test_a_band_surrounds_its_curve_and_leaves_the_gap_open() -> None:
    bands = [corners(path) for path in paths(to_svg(LINES), "band")]
    lines = [corners(path) for path in paths(to_svg(LINES), "line")][:2]
    assert [len(band) for band in bands] == [4, 4]
    for band, line in zip(bands, lines, strict=True):
        low, high = band[: len(line)], band[len(line) :][::-1]
        assert all(a[1] > b[1] > c[1] for a, b, c in zip(low, line, high, strict=True))


def test_curves_of_a_group_share_a_colour_and_one_name_and_are_thin() -> None:
    series = {f"{arm} {seed}": (float(seed), 2.0) for arm in ("plain", "mix") for seed in range(3)}
    groups = {name: name.split()[0] for name in series}
    figure = Lines(
        title="t",
        x_label="step",
        y_label="score",
        x=(0, 1),
        series=series | {"dense": (1.0, 1.5)},
        groups=groups,
    )
    root = parse(to_svg(figure))
    colours = [item.get("stroke") for item in root.iter(f"{SVG}path") if item.get("class") == "thin"]
    assert colours == [LIGHT[0]] * 3 + [LIGHT[1]] * 3
    assert len(paths(to_svg(figure), "line")) == 1
    assert [words for words in texts(root) if words in ("plain", "mix", "dense")] == ["plain", "mix", "dense"]
    assert "mix, 3 curves: the last values are from 2 to 2" in (root.findtext(f"{SVG}desc") or "")


def test_a_logarithmic_curve_leaves_out_what_has_no_logarithm() -> None:
    figure = Lines(
        title="t",
        x_label="step",
        y_label="norm",
        x=(0, 1, 2, 3),
        series={"a": (1.0, 0.1, 0.01, 0.0)},
        is_log=True,
    )
    (line,) = (corners(path) for path in paths(to_svg(figure), "line"))
    assert line[1][1] - line[0][1] == pytest.approx(line[2][1] - line[1][1], abs=0.2)
    assert len(line) == 3


def test_bars_stand_on_zero_and_are_as_long_as_their_values() -> None:
    root = parse(to_svg(BARS))
    # The first two are the legend's.
    heights = [float(item.get("height", "")) for item in root.iter(f"{SVG}rect")][2:]
    values = [10.0, 88.0, 60.0, 61.5, 58.0]
    assert heights == pytest.approx([heights[1] * value / 88.0 for value in values], abs=0.1)
    assert len(paths(to_svg(BARS), "whisker")) == 2


def test_bars_of_close_values_without_intervals_still_stand_on_zero() -> None:
    figure = replace(BARS, series={"a": (80.0, 85.0, 90.0)}, errors={})
    heights = [float(item.get("height", "")) for item in parse(to_svg(figure)).iter(f"{SVG}rect")]
    assert heights[1:] == pytest.approx([heights[3] * v / 90 for v in (80, 85, 90)], abs=0.1)


def test_close_scores_with_intervals_are_dots_and_not_bars_cut_off() -> None:
    errors = {"accuracy": ((90.0, 92.0), (91.0, 93.0))}
    figure = Bars(
        title="t",
        x_label="arm",
        y_label="accuracy (%)",
        names=("x", "y"),
        series={"accuracy": (91.0, 92.0)},
        errors=errors,
    )
    root = parse(to_svg(figure))
    assert list(root.iter(f"{SVG}rect")) == []
    assert len(list(root.iter(f"{SVG}circle"))) == 2


def test_a_grid_has_more_ink_for_more_and_another_ink_below_its_center() -> None:
    root = parse(to_svg(HEAT))
    cells = [
        (item.get("class"), float(item.get("fill-opacity", "0")), item.get("d", "").count("M"))
        for item in root.iter(f"{SVG}path")
    ]
    assert sum(count for _, _, count in cells) == 6
    assert [count for kind, _, count in cells if kind == "none"] == [1]
    assert max(cells, key=lambda cell: cell[1])[:2] == ("more", 1.0)
    assert [kind for kind, _, _ in cells].count("less") == 1
    assert {"0.90", "−0.40", "–"} <= set(texts(root))


@pytest.mark.parametrize(
    ("center", "inks"),
    [
        (None, [("more", 0.05), ("more", 0.29), ("more", 0.53), ("more", 1.0)]),
        (1.0, [("less", 0.37), ("more", 0.05), ("more", 0.37), ("more", 1.0)]),
    ],
)
def test_ink_grows_with_the_distance_from_the_low_end_or_the_center(
    center: float | None, inks: list[tuple[str, float]]
) -> None:
    figure = Heat(
        title="t",
        x_label="x",
        y_label="y",
        columns=tuple("abcd"),
        rows=("r",),
        values=((0.0, 1.0, 2.0, 4.0),),
        center=center,
    )
    boxes = [
        (float(corner), (item.get("class"), float(item.get("fill-opacity", ""))))
        for item in parse(to_svg(figure)).iter(f"{SVG}path")
        for corner in re.findall(r"M([\d.]+)", item.get("d", ""))
    ]
    assert [ink for _, ink in sorted(boxes)] == inks


def test_grids_with_the_same_limits_have_the_same_ink_for_the_same_value() -> None:
    def ink(values: tuple[float, ...]) -> str | None:
        columns = tuple(map(str, range(len(values))))
        figure = Heat(
            title="t",
            x_label="x",
            y_label="y",
            columns=columns,
            rows=("r",),
            values=(values,),
            limits=(0.0, 1.0),
        )
        return next(parse(to_svg(figure)).iter(f"{SVG}path")).get("fill-opacity")

    assert ink((0.5, 0.1)) == ink((0.5, 0.9))


def test_a_large_grid_stays_small() -> None:
    size = 40
    names = tuple(f"word {k}" for k in range(size))
    values = tuple(tuple(i * j / size**2 for j in range(size)) for i in range(size))
    figure = Heat(title="t", x_label="x", y_label="y", columns=names, rows=names, values=values)
    assert len(to_svg(figure)) < 90_000


def test_names_of_points_do_not_cover_each_other() -> None:
    count = 30
    figure = Points(
        title="t",
        x_label="x",
        y_label="y",
        x=tuple(k % 6 * 1.0 for k in range(count)),
        y=tuple(k // 6 + k % 3 * 0.1 for k in range(count)),
        names=tuple(f"model {k}" for k in range(count)),
        groups=tuple("ab"[k % 2] for k in range(count)),
    )
    root = parse(to_svg(figure))
    names = [item for item in root.iter(f"{SVG}text") if item.get("class") == "name"]
    boxes = [(float(n.get("x", "")), float(n.get("y", "")), width_of(n.text or "", 11)) for n in names]
    assert len(boxes) > 10
    for index, (x, y, width) in enumerate(boxes):
        for other_x, other_y, other_width in boxes[:index]:
            is_apart = x >= other_x + other_width or other_x >= x + width
            assert is_apart or abs(y - other_y) >= 12
    titles = [item.findtext(f"{SVG}title") for item in root.iter(f"{SVG}path")]
    # A touch tells all of them.
    assert {f"model {k}" for k in range(count)} <= set(titles)


def test_every_group_of_points_has_its_own_shape_and_colour() -> None:
    count = 24
    figure = Points(
        title="t",
        x_label="x",
        y_label="y",
        x=tuple(map(float, range(count))),
        y=(0.0,) * count,
        names=tuple(f"model {k}" for k in range(count)),
        groups=tuple(f"kind {'abcdefghijklmnopqrstuvwx'[k]}" for k in range(count)),
    )
    marks = [
        item for item in parse(to_svg(figure)).iter(f"{SVG}path") if item.find(f"{SVG}title") is not None
    ]
    assert len({look(mark) for mark in marks}) == len(marks) == count


def look(mark: ElementTree.Element) -> tuple[str | None, str, bool]:
    """Tell a mark's colour, whether it is round or how many corners it has, and whether its top is level."""
    outline = mark.get("d", "")
    (_, top), *others = corners(outline)
    return mark.get("fill"), re.sub(r"[^A-Za-z]+", "", outline), any(y == top for _, y in others[:1])


def test_every_point_of_the_front_has_its_name() -> None:
    figure = replace(
        POINTS,
        x=(1.0, 2.0, 2.8, 3.1, 5.2, 8.7, 8.8, 10.0, 9.6),
        y=(100.0, 99.4, 98.9, 98.6, 97.5, 96.6, 95.4, 93.9, 93.8),
        names=(*(f"method-{k}-of-them" for k in range(8)), "m"),
        groups=("a",) * 9,
        front=tuple(range(8)),
        is_log=True,
    )
    root = parse(to_svg(figure))
    assert {item.text for item in root.iter(f"{SVG}text") if item.get("class") == "name"} >= set(
        figure.names[:8]
    )


def test_a_point_of_the_front_among_many_has_its_name_further_away_at_a_line() -> None:
    crowd = 12
    figure = replace(
        POINTS,
        x=(
            1.0,
            1.82,
            2.0,
            3.1,
            1500.0,
            0.91,
            *(1.8 + k % 3 * 0.05 for k in range(crowd)),
            2.8,
            2.8,
            1.0,
            1.0,
        ),
        y=(
            99.8,
            99.77,
            99.3,
            98.5,
            89.5,
            99.8,
            *(99.5 - k * 0.12 for k in range(crowd)),
            98.0,
            98.4,
            86.0,
            97.5,
        ),
        names=("dense", "mixout", "words", "fisher", "tf-idf", *(f"model {k}" for k in range(crowd + 5))),
        groups=("a",) * (crowd + 10),
        front=(4, 3, 2, 1, 0),
        is_log=True,
    )
    root = parse(to_svg(figure))
    named = {item.text for item in root.iter(f"{SVG}text") if item.get("class") == "name"}
    assert {figure.names[index] for index in figure.front} <= named
    assert len(paths(to_svg(figure), "whisker")) >= 1


def test_the_front_joins_its_points_from_left_to_right() -> None:
    (line,) = (corners(path) for path in paths(to_svg(POINTS), "front"))
    assert [x for x, _ in line] == sorted(x for x, _ in line)
    assert len(line) == 3


@pytest.mark.parametrize(
    "figure",
    [
        replace(LINES, series={"a": (None,) * 5}, bands={}),
        replace(LINES, x=(), series={}, bands={}),
        replace(BARS, series={"a": (math.nan,) * 3}, errors={}),
        replace(BARS, names=(), series={}, errors={}),
        replace(BARS, names=(), series={}, errors={}, is_level=True),
        replace(BARS, series={"a": (math.nan,) * 3}, errors={}, is_level=True),
        replace(HEAT, columns=(), rows=(), values=()),
        replace(HEAT, values=((None,) * 3,) * 2),
        replace(POINTS, x=(), y=(), names=(), groups=(), front=()),
        replace(TABLE, rows=()),
    ],
    ids=str,
)
def test_a_figure_without_numbers_is_still_a_drawing(figure: Figure) -> None:
    assert parse(to_svg(figure)).get("aria-label")
    assert "NaN" not in to_svg(figure)
    assert "nan" not in to_svg(figure)


def test_numbers_that_do_not_fit_their_axis_are_refused_in_a_sentence() -> None:
    with pytest.raises(BermoError, match='The figure "Rows" has 1 values where its axis has 2'):
        to_svg(replace(TABLE, rows=(("a",),)))


def test_panels_of_one_row_share_their_upright_axis(tmp_path: Path) -> None:
    low = Lines(title="low", x_label="x", y_label="y", x=(0, 1), series={"a": (0.0, 1.0)})
    high = replace(low, title="high", series={"a": (0.0, 10.0)})
    write_panels(tmp_path / "panels.svg", "Both", [[low, high]])
    root = parse((tmp_path / "panels.svg").read_text(encoding="utf-8"))
    assert {"Both", "low", "high"} <= set(texts(root))
    assert texts(root).count("10") == 2


def test_a_table_of_html_escapes_its_cells_and_leaves_what_is_missing_empty() -> None:
    table = to_html_table(TABLE)
    assert NASTY not in table
    assert "&lt;b&gt;" in table
    assert '<tr><td class="t">b<td>\n' in table
    assert "<td>10\n" in table


def test_a_drawing_that_fills_its_place_has_letters_of_one_size() -> None:
    short = replace(ARCS, words=("it", "ends"), above=((0, 1),), below=((0, 1),))
    widths = [float(parse(to_svg(figure)).attrib["viewBox"].split()[2]) for figure in (short, LINES)]
    assert widths[0] == widths[1]


def test_a_sequence_of_layers_goes_from_blue_to_orange_and_others_have_their_own_colours() -> None:
    layers = colours_of([f"layer {k}" for k in range(1, 13)])
    assert len(set(layers)) == 12
    assert layers[0].startswith("#")
    dashes = dashes_of([f"layer {k}" for k in range(1, 13)])
    assert all(one != next_one for one, next_one in pairwise(dashes))
    others = list("abcdefghijkl")
    pairs = set(zip(colours_of(others), dashes_of(others), strict=True))
    assert len(pairs) == 12


@pytest.mark.parametrize(
    ("paper", "series"), [(LIGHT_PAPER, LIGHT), (DARK_PAPER, DARK)], ids=["light", "dark"]
)
def test_every_colour_stands_out_from_its_paper(paper: dict[str, str], series: tuple[str, ...]) -> None:
    for colour in series:
        # WCAG 2.2, 1.4.11: graphical objects.
        assert contrast(colour, paper["paper"]) >= 3
    for name in ("ink", "muted"):
        # WCAG 2.2, 1.4.3: text.
        assert contrast(paper[name], paper["paper"]) >= 4.5


def contrast(one: str, other: str) -> float:
    def luminance(colour: str) -> float:
        parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("letter", ["x", "語", "\u0301"])
def test_a_label_of_any_length_is_cut_in_a_moment(letter: str) -> None:
    short = cut(letter * 1000, 100.0)
    assert cut(letter * 1_000_000, 100.0) == short
    assert short.endswith("…")
    assert width_of(short) <= 100.0 < width_of(letter + short)


def test_signs_of_code_are_counted_as_wide_as_they_are_drawn() -> None:
    assert width_of("<&>", 10) > width_of("abc", 10)
    assert width_of("<b>&\"'</b>", 11) > 71.2  # DejaVu Sans, in a browser
