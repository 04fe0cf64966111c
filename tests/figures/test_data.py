"""Figures as data: they come back from their file as they were written, and every one has a table."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from bermo.errors import BermoError
from bermo.figures.data import (
    Bars,
    Figure,
    Findings,
    Heat,
    Lines,
    Points,
    Section,
    Table,
    as_table,
    check,
    read_findings,
    write_findings,
)
from bermo.files import read_sealed

AXES = {"title": "t", "x_label": "layer", "y_label": "score"}
FIGURES: list[Figure] = [
    Lines(**AXES, x=(0, 1), series={"a": (1.0, None)}, bands={"a": ((0.5, 1.5), (1.0, 2.0))}),
    Heat(**AXES, columns=("0", "1"), rows=("r",), values=((1.0, None),), center=0.0),
    Bars(**AXES, names=("n",), series={"a": (1.0,)}, errors={"a": ((0.5, 1.5),)}),
    Points(**AXES, x=(1.0,), y=(2.0,), names=("p",), groups=("g",), front=(0,)),
    Table(title="t", columns=("a", "b"), rows=(("x", 1.0),)),
]


def test_figures_come_back_as_they_were_written(tmp_path: Path) -> None:
    section = Section(title="s", text="What was found.", figures=tuple(FIGURES))
    findings = Findings(title="f", facts={"model": "box"}, sections=(section,))
    write_findings(tmp_path / "figures.json", findings)
    assert read_findings(tmp_path / "figures.json") == findings
    text = (tmp_path / "figures.json").read_text()
    (tmp_path / "figures.json").write_text(text.replace("1.0", "9.0", 1))
    with pytest.raises(BermoError, match="not the one that was written"):
        read_findings(tmp_path / "figures.json")


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: type(figure).__name__)
def test_every_figure_has_a_table_with_a_cell_for_each_column(figure: Figure) -> None:
    table = as_table(figure)
    assert table.rows
    assert all(len(row) == len(table.columns) for row in table.rows)


def test_the_table_of_a_figure_has_the_ends_of_its_intervals() -> None:
    lines, bars = as_table(FIGURES[0]), as_table(FIGURES[2])
    assert lines.columns == ("layer", "a", "a, low", "a, high")
    assert lines.rows == ((0, 1.0, 0.5, 1.5), (1, None, None, None))
    assert bars.rows == (("n", 1.0, 0.5, 1.5),)


def test_intervals_of_nothing_have_no_columns() -> None:
    for end, columns in ((math.nan, 2), (None, 2), (2.0, 4)):
        bars = Bars(**AXES, names=("n",), series={"a": (1.0,)}, errors={"a": ((end, end),)})  # type: ignore[arg-type]
        assert len(as_table(bars).columns) == columns


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: type(figure).__name__)
def test_a_figure_whose_numbers_do_not_fit_its_axes_is_refused(figure: Figure) -> None:
    check(figure)
    wrong: Figure
    match figure:
        case Lines():
            wrong = replace(figure, x=(0, 1, 2))
        case Heat():
            wrong = replace(figure, columns=("0",))
        case Bars():
            wrong = replace(figure, names=("n", "m"))
        case Points():
            wrong = replace(figure, groups=())
        case Table():
            wrong = replace(figure, columns=("a",))
    with pytest.raises(BermoError, match='The figure "t" has'):
        check(wrong)


def test_a_group_of_a_series_that_is_not_there_is_refused() -> None:
    lines = FIGURES[0]
    assert isinstance(lines, Lines)
    with pytest.raises(BermoError, match=r'The figure "t" groups b, which it does not have'):
        check(replace(lines, groups={"b": "seeds"}))


def test_another_file_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"a": 1}')
    with pytest.raises(BermoError, match="no file of figures"):
        read_findings(tmp_path / "other.json")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"title": "t"', '"title": 3'),
        ('"text": ""', '"text": [1]'),
        ('"front": [', '"front": [99, '),
        ('"x": [', '"x": ["a", '),
        ('"x": [', f'"x": [{10**400}, '),
        ('"facts": {', '"facts": {"a": 1, '),
    ],
)
def test_a_value_of_another_type_is_refused_in_a_sentence(old: str, new: str, tmp_path: Path) -> None:
    section = Section(title="s", text="", figures=FIGURES)
    write_findings(tmp_path / "figures.json", Findings(title="f", facts={"b": "c"}, sections=(section,)))
    text = " ".join(json.dumps(read_sealed(tmp_path / "figures.json"), indent=2).split())
    assert old in text
    (tmp_path / "figures.json").write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(BermoError, match=r"no file of figures|points that it does not have"):
        read_findings(tmp_path / "figures.json")
