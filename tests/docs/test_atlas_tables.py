"""The tables of the atlas hold every method that was measured, and can be made of any that will be."""

from typing import Any

import pytest

from bermo.atlas.methods import NAMES
from scripts import make_figures
from scripts.tables import atlas

FILES = ("atlas-gpu.json", "atlas-mrpc.json")
SHIPPED = {"same_labels": 90.0, "same_probabilities": 90.0, "megabytes": 5.0, "parameters": 9, "nonzero": 9}


def row(name: str, scores: dict[int, float], shipped: dict[int, float], **more: Any) -> dict[str, Any]:
    return {
        "method": name,
        "group": "students",
        "summary": name,
        "seeds": list(scores),
        "scores": list(scores.values()),
        "shipped": [{"seed": seed, "score": score} | SHIPPED | more for seed, score in shipped.items()],
    }


@pytest.mark.parametrize("name", FILES)
def test_every_method_that_was_measured_stands_in_a_section(name: str) -> None:
    shown = {method for methods in atlas.SECTIONS.values() for method in methods}
    assert [row["method"] for row in atlas.read(name)["rows"] if row["method"] not in shown] == []


def test_every_method_of_the_atlas_has_a_section() -> None:
    assert {method for methods in atlas.SECTIONS.values() for method in methods} == set(NAMES)


def test_a_section_shows_a_method_as_soon_as_one_file_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    dense = row("dense", {1: 90.0, 2: 80.0}, {1: 90.0, 2: 80.0})
    known: dict[str, Any] = {name: {"rows": [dense]} for name in FILES}
    known["atlas-x86.json"] = {"rows": {"tf-idf": {"throughput": 2000.0, "latency": 10.0, "on": "texts"}}}
    monkeypatch.setattr(atlas, "read", known.__getitem__)
    assert atlas.ours("groups", "groups2") == ""
    known["atlas-mrpc.json"]["rows"] = [dense, row("groups2", {}, {1: 45.0, 2: 60.0})]
    known["atlas-gpu.json"]["rows"] = [
        dense,
        row("tf-idf", {}, {1: 72.0}),
        row("ff2", {1: 81.0, 2: 76.0}, {}),
    ]
    made = {line.split("`")[1]: line for line in atlas.ours("groups2", "tf-idf", "ff2").splitlines()[2:]}
    # Each seed beside the dense model of the same seed: 45 of 90, 60 of 80; a baseline beside all of them.
    assert "| `groups2` | – | – | – | – | 52.50 (" in made["groups2"]
    assert made["groups2"].endswith(" | 62.5 % |")
    assert made["tf-idf"] == "| `tf-idf` | 72.00 | 85.0 % | 2000.0 × | 5.0 | – | – |"
    assert "| `ff2` | 78.50 (" in made["ff2"]
    assert " | 92.5 % |" in made["ff2"]


def test_tables_and_figure_can_be_made_of_all_methods_and_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = {1: 90.0, 2: 80.0, 3: 85.0}
    rows = [row(name, scores, {1: 72.0, 2: 80.0, 3: 85.0} if name == "int8" else scores) for name in NAMES]
    known: dict[str, Any] = {name: {"rows": rows} for name in FILES}
    known["atlas-x86.json"] = {"rows": {name: {"throughput": 2.0, "latency": 2.0} for name in NAMES}}
    monkeypatch.setattr(atlas, "read", known.__getitem__)
    monkeypatch.setattr(make_figures, "read", known.__getitem__)
    for name in FILES:
        assert all(f"| `{method}` |" in atlas.methods(name) for method in NAMES)
    for methods in atlas.SECTIONS.values():
        assert all(f"| `{method}` |" in atlas.ours(*methods) for method in methods)
    points = make_figures.atlas_front()
    assert dict(zip(points.names, points.y, strict=True))["int8"] == pytest.approx(
        (80 + 100 + 100) / 3, abs=0.01
    )
    assert "3 seeds" in (points.note or "")


def test_a_model_that_compress_chose_otherwise_for_one_seed_has_no_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timed = {"compress": {"throughput": 8.0, "latency": 4.0, "picked": "a"}}
    monkeypatch.setattr(atlas, "read", {"atlas-x86.json": {"rows": timed}}.__getitem__)
    known = row("compress", {}, {1: 90.0, 2: 80.0}, picked="a")
    assert atlas.is_timed(known)
    known["shipped"][1]["picked"] = "b"
    assert not atlas.is_timed(known)
