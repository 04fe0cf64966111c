"""The grid's page and heat map show the numbers of its JSON file, and nothing else."""

import json
import math
import re
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest

from bermo.errors import BermoError
from bermo.figures.draw import to_svg
from scripts import make_grid
from scripts.tables.evidence import mix_gaps
from scripts.tables.grid import ALONE, grid
from scripts.tables.grid_pages import arms_of, counted, defaults, elsewhere, heats, seeds_for, seeds_wanted
from scripts.tables.judged import differing
from tests.docs.documents import ROOT, rows_of

# From a printed table of Student's t, 97.5 %.
CARD = "NVIDIA H200"
T_OF_2 = 4.302653
DENSE = (92.0, 91.5, 91.0)
SIZE, SOFT, SCORE = (88.0, 88.6, 89.2), (90.0, 90.4, 89.9), (50.9, 85.0, 86.0)


def arm(method: str, scores: tuple[float, ...], **others: Any) -> list[dict[str, Any]]:
    """Three seeds of an arm; a score at guessing is a dead seed."""
    made = {"encoder": "small", "task": "sst2", "mix": True, "density": 0.1, "device": CARD}
    made["dense"] = method == "dense"
    return [
        made | {"method": method, "seed": seed, "score": last + 0.2, "last": last, "dead": last < 51} | others
        for seed, last in enumerate(scores)
    ]


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    return [
        *arm("dense", DENSE, density=1.0),
        *arm("sensitivity", SIZE),
        *arm("soft", SOFT, density=0.098),
        *arm("score", SCORE),
        *arm("sensitivity", (50.9, 88.0, 87.0), encoder="base"),
        *arm("magnitude", (82.0, 83.0, 84.0), encoder="base", mix=False),
        *arm("sensitivity", (80.0, 80.1, 80.3), task="mrpc"),
        *arm("soft", (80.2, 80.4, 80.6), task="mrpc"),
    ]


def test_a_cell_is_mean_and_interval_of_the_last_evaluations_of_seeds_that_live(rows: list[Any]) -> None:
    shown = {row[""]: row for row in rows_of(arms_of(grid(rows), "small"))}
    half = T_OF_2 * statistics.stdev(SOFT) / math.sqrt(3)
    assert shown["soft movement, mix"]["SST-2"] == f"**{statistics.fmean(SOFT):.2f} ± {half:.2f} (3)**"
    assert shown["soft movement, mix"]["kept"] == "9.8 … 10.0 %"
    assert shown["movement by score (the paper's), mix"]["SST-2"].startswith("85.50 ±")
    assert shown["movement by score (the paper's), mix"]["SST-2"].endswith("† 1 of 3")


def test_the_default_is_the_spec_s_unless_rows_are_named_so(rows: list[Any]) -> None:
    assert grid(rows).default.name == "movement by sensitivity, mix"
    named = [*rows, *arm("default", (89.0, 89.0, 89.1), mix=False)]
    assert grid(named).default.name == "movement, the default, plain"


def test_the_default_is_compared_with_the_best_arm_whose_seeds_all_live(rows: list[Any]) -> None:
    first, base, mrpc = rows_of(defaults(grid(rows)))
    gap = statistics.fmean(SIZE) - statistics.fmean(SOFT)
    error = statistics.variance(SIZE) / 3 + statistics.variance(SOFT) / 3
    freedom = error**2 / ((statistics.variance(SIZE) / 3) ** 2 / 2 + (statistics.variance(SOFT) / 3) ** 2 / 2)
    assert math.floor(freedom) == 2
    assert first["default − best"] == f"−{-gap:.2f} ± {T_OF_2 * math.sqrt(error):.2f}"
    assert first["of dense"] == f"{100 * statistics.fmean(SIZE) / statistics.fmean(DENSE):.1f} %"
    assert first["verdict"] == "**behind** by 1.50; within 0.5 is possible"
    assert base["best"].startswith("magnitude, plain: 83.00")
    assert base["verdict"] == "**dies**: 1 of 3 seeds"
    assert mrpc["verdict"] == "within 0.5"


def test_the_sentence_counts_places_where_the_default_lives_and_is_near(rows: list[Any]) -> None:
    assert "Of 3 places" in counted(grid(rows))
    assert "in 2. Of the 2 with another arm it is the best or within 0.5 points of it in 1." in counted(
        grid(rows)
    )


def test_the_seeds_that_an_interval_wants_follow_from_the_deviation_of_one(rows: list[Any]) -> None:
    first, *others = rows_of(seeds_wanted(grid(rows)))
    assert (first["encoder"], first["seeds"], first["deviation of one"]) == ("small", "3", "0.60")
    # Student's t of 16 and 17 degrees is 2.120 and 2.110.
    assert first["seeds for ± 0.3"] == "18"
    assert 2.120 * 0.6 / math.sqrt(17) > 0.3 > 2.110 * 0.6 / math.sqrt(18)
    assert [row["encoder"] for row in others] == ["base"]
    assert seeds_for(0.6, 100.0) == 2


def test_a_heat_map_has_the_distance_to_the_best_and_a_gap_for_arms_that_died(rows: list[Any]) -> None:
    small, base = heats(grid(rows))
    assert (small.title, small.columns, base.columns) == ("small", ("SST-2", "MRPC"), ("SST-2",))
    assert small.rows == ("by sensitivity, mix ★", "soft movement, mix", "by score, mix")
    assert base.rows == ("by sensitivity, mix ★", "magnitude, plain")
    assert small.values == ((-1.5, -0.267), (0.0, 0.0), (None, None))
    assert base.values == ((None,), (0.0,))


def test_a_heat_map_gives_no_place_to_an_arm_that_nothing_stands_beside(rows: list[Any]) -> None:
    alone = arm("sensitivity", (80.0, 80.1, 80.3), task="cola")
    taught = arm("taught", (81.0, 81.1, 81.3), task="cola")
    for others in ([], taught):
        known = grid([*rows, *alone, *others])
        assert heats(known)[0].columns == heats(grid(rows))[0].columns
        assert [row["verdict"] for row in rows_of(defaults(known)) if row["task"] == "CoLA"] == [ALONE]


def test_cells_of_another_device_are_named(rows: list[Any]) -> None:
    assert elsewhere(grid(rows), "small") == ""
    known = grid([*rows, *arm("magnitude", (70.0, 71.0, 72.0), task="mrpc", device="a processor")])
    assert elsewhere(known, "small") == "On a processor: magnitude, mix on MRPC."
    assert elsewhere(known, "base") == ""
    assert "On a processor: magnitude, mix on MRPC." in make_grid.page(known)


def test_a_taught_arm_is_shown_but_is_not_the_best_that_others_are_compared_with(rows: list[Any]) -> None:
    known = grid([*rows, *arm("size-taught", (94.0, 94.1, 94.2))])
    assert "94.10" in arms_of(known, "small")
    assert rows_of(defaults(known))[0]["best"].startswith("soft movement, mix")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"last": "high"}, "Row 1 of the grid: last is 'high'"),
        ({"seed": 1}, "Seed 1 stands twice in small, sst2, dense, mix"),
    ],
)
def test_a_wrong_row_is_named(change: dict[str, Any], sentence: str, rows: list[Any]) -> None:
    with pytest.raises(BermoError, match=re.escape(sentence)):
        grid([rows[0] | change, *rows[1:]])


def test_a_row_without_a_field_is_named(rows: list[Any]) -> None:
    del rows[2]["dead"]
    with pytest.raises(BermoError, match="Row 3 of the grid lacks dead"):
        grid(rows)


def test_the_script_writes_the_page_and_the_figure(
    rows: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "grid.json"
    source.write_text(json.dumps(rows), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["make_grid.py", str(source), "--out", str(tmp_path)])
    make_grid.main()
    text = (tmp_path / "grid.md").read_text(encoding="utf-8")
    assert text == make_grid.page(grid(rows))
    assert all(f"\n## {name}\n" in text for name in ("small", "base"))
    assert "−1.5" in (tmp_path / "grid.svg").read_text(encoding="utf-8")


def test_a_committed_grid_is_what_its_numbers_give() -> None:
    names = [path.name for path in sorted((ROOT / "results").glob("grid.*"))]
    if not names:
        return
    assert names == ["grid.json", "grid.md", "grid.svg"], "run python scripts/make_grid.py"
    known = grid(json.loads((ROOT / "results" / "grid.json").read_text(encoding="utf-8")))
    made = {"grid.md": make_grid.page(known), "grid.svg": make_grid.figure(known)}
    for name, text in made.items():
        assert text == (ROOT / "results" / name).read_text(encoding="utf-8"), (
            "run python scripts/make_grid.py"
        )


AHEAD = re.compile(
    r"(−?[\d.]+) to ([\d.]+)\s(?:points\s)?ahead\sof\s(soft\smovement|the\spaper|ranking\sby\s\w+|magnitude)"
)
RIVALS = {
    "soft movement": "soft",
    "the paper": "score",
    "ranking by score": "score",
    "ranking by size": "size",
    "magnitude": "magnitude",
}
ENCODERS = ("gte-small", "MiniLM-L6", "mpnet-base", "the box")


def lead_over(rival: str) -> list[float]:
    """How far the default is ahead of a rival in each place that has both, with the mix; dead seeds apart."""
    scores: dict[tuple[str, str, str], list[float]] = {}
    for row in json.loads((ROOT / "results" / "grid.json").read_text(encoding="utf-8")):
        if row["mix"] and not row["dead"] and row["encoder"] in ENCODERS:
            scores.setdefault((row["encoder"], row["task"], row["method"]), []).append(row["last"])
    means = {place: statistics.fmean(last) for place, last in scores.items()}
    return [
        means[encoder, task, "sensitivity"] - mean
        for (encoder, task, method), mean in means.items()
        if method == rival and (encoder, task, "sensitivity") in means
    ]


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/prune.md", "CHANGELOG.md"])
def test_how_far_the_default_is_ahead_is_what_the_grid_gives(page: str) -> None:
    found = AHEAD.findall((ROOT / page).read_text(encoding="utf-8"))
    assert found
    for low, high, rival in found:
        leads = lead_over(RIVALS[" ".join(rival.split())])
        for shown, real in ((low, min(leads)), (high, max(leads))):
            assert float(shown.replace("−", "-")) == round(real, len(shown.partition(".")[2])), (rival, leads)


def test_no_training_by_sensitivity_died_and_nowhere_is_the_mix_shown_to_matter_to_it() -> None:
    """As docs/how-to/prune.md and docs/explanation/pruning.md say."""
    rows = json.loads((ROOT / "results" / "grid.json").read_text(encoding="utf-8"))
    assert not any(row["dead"] for row in rows if row["method"] == "sensitivity")
    gaps = mix_gaps(grid(rows), lambda _, one: one.method == "sensitivity")
    assert gaps
    assert not differing(gaps)


def test_every_map_shows_its_numbers_and_the_whole_names_of_its_arms() -> None:
    for one in heats(grid(json.loads((ROOT / "results" / "grid.json").read_text(encoding="utf-8")))):
        drawn = to_svg(one)
        assert all(f">{name}<" in drawn for name in one.rows)
        assert "−0.0<" not in drawn
        assert any(
            f">{value:.1f}<".replace("-", "−") in drawn for row in one.values for value in row if value
        )
