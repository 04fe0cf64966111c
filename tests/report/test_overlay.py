"""Findings of several folders on one page: told apart, and what they have in common in one figure."""

from dataclasses import replace
from pathlib import Path

from bermo.figures.data import Findings, Heat, Lines, Section, write_findings
from bermo.report.collect import collect
from bermo.report.overlay import MAX_CURVES, on_one_scale, overlay
from bermo.report.page import write_page


def layers(count: int, **series: tuple[float, ...]) -> Findings:
    figure = Lines(
        title="Anisotropy",
        x_label="layer",
        y_label="cosine",
        x=tuple(map(float, range(count))),
        series=series,
    )
    return Findings(
        title="Analysis", facts={}, sections=(Section(title="Geometry", text="", figures=(figure,)),)
    )


def test_the_same_curve_of_two_models_stands_in_one_figure_over_all_layers() -> None:
    both = overlay([layers(3, all=(0.1, 0.2, 0.3)), layers(2, all=(0.5, 0.6))], ["one", "two"])
    assert both is not None
    ((figure,),) = [section.figures for section in both.sections]
    assert isinstance(figure, Lines)
    assert figure.x == (0.0, 1.0, 2.0)
    assert figure.series == {"one": (0.1, 0.2, 0.3), "two": (0.5, 0.6, None)}


def grid(*values: float | None, title: str = "Gain") -> Findings:
    heat = Heat(
        title=title, x_label="layer", y_label="task", columns=("0", "1"), rows=("t",), values=(values,)
    )
    return Findings(title="Probes", facts={}, sections=(Section(title="All", text="", figures=(heat,)),))


def test_the_same_grid_of_two_models_has_one_scale_of_colours() -> None:
    drawn = on_one_scale(
        [grid(1.0, 5.0), grid(-2.0, None), grid(7.0, 9.0, title="Another"), grid(None, None)]
    )
    limits = [item.sections[0].figures[0].limits for item in drawn]  # type: ignore[union-attr]
    assert limits == [(-2.0, 5.0), (-2.0, 5.0), (7.0, 9.0), (-2.0, 5.0)]
    assert on_one_scale([grid(None, None)]) == [grid(None, None)]


def test_several_curves_of_each_keep_their_names() -> None:
    one = layers(2, all=(0.1, 0.2), none=(0.0, 0.0))
    both = overlay([one, one], ["a", "b"])
    assert both is not None
    assert list(both.sections[0].figures[0].series) == ["a: all", "a: none", "b: all", "b: none"]  # type: ignore[union-attr]


def test_nothing_in_common_or_too_much_is_not_drawn() -> None:
    one = layers(2, all=(0.1, 0.2))
    other = replace(one, sections=(replace(one.sections[0], title="Senses"),))
    assert overlay([one, other], ["a", "b"]) is None
    many = layers(1, **{f"c{k}": (0.0,) for k in range(MAX_CURVES // 2 + 1)})
    assert overlay([many, many], ["a", "b"]) is None


def test_a_page_of_two_analyses_has_two_headings_and_the_shared_figure(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        write_findings(tmp_path / name / "figures.json", layers(2, all=(0.1, 0.2)))
    assert [item.title for item in collect([tmp_path]).findings] == ["Analysis: first", "Analysis: second"]
    write_page([tmp_path], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("<h2>Analysis: first</h2>") == page.count("<h2>Side by side</h2>") == 1
