"""What scripts make for the documents is what is committed: tables, tree, figures, reference."""

import re
from pathlib import Path

import pytest

from scripts.make_figures import FIGURES, drawn
from scripts.make_reference import OUT, pages
from scripts.make_tables import BLOCKS, MARKED, filled
from scripts.tables.tree import ROOMS
from tests.docs.documents import ROOT, documents, name_of, tables

MEASURED = re.compile(r"\d\.\d")
NOT_MEASURED = {
    "docs/explanation/pruning.md": "formulas",
}
WHOLE = {
    "results/grid.md": "scripts/make_grid.py",
    "results/gpu.md": "benchmarks/gpu_tables.py",
    "results/probing.md": "benchmarks/probe_tables.py",
    "results/objectives.md": "benchmarks/pretraining_tables.py",
    "results/habits.md": "benchmarks/pretraining_tables.py",
    "results/elmo.md": "benchmarks/pretraining_tables.py",
    "docs/licences.md": "scripts/make_licences.py",
}
"""Pages that a script makes as a whole."""


@pytest.mark.parametrize("path", documents(), ids=name_of)
def test_every_made_table_is_what_its_numbers_give(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert filled(text) == text, f"{name_of(path)} is stale: run python scripts/make_tables.py"


def test_every_kind_of_table_is_used() -> None:
    used = {
        mark["name"] for path in documents() for mark in MARKED.finditer(path.read_text(encoding="utf-8"))
    }
    assert used == set(BLOCKS)


@pytest.mark.parametrize("path", documents(), ids=name_of)
def test_a_table_with_measured_numbers_is_made_from_a_result(path: Path) -> None:
    name = name_of(path)
    if name in WHOLE or name.startswith("docs/reference/"):
        return
    made = "".join(block[0] for block in MARKED.finditer(path.read_text(encoding="utf-8")))
    for _, rows in tables(path):
        if rows not in made and name not in NOT_MEASURED:
            assert not MEASURED.search(rows), f"{name} has a table with numbers that no script makes:\n{rows}"


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_what_its_numbers_give(name: str) -> None:
    assert drawn(name) == (ROOT / name).read_text(encoding="utf-8"), "run python scripts/make_figures.py"


def test_the_reference_is_what_options_and_docstrings_say() -> None:
    made = pages()
    committed = {
        path.relative_to(OUT).as_posix(): path.read_text(encoding="utf-8") for path in OUT.rglob("*.md")
    }
    assert committed.keys() == made.keys(), "run python scripts/make_reference.py"
    for name, text in made.items():
        assert committed[name] == text, f"{name} is stale: run python scripts/make_reference.py"


def test_the_tree_of_the_readme_names_every_room() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for floor in ROOMS:
        for room, line in floor.items():
            assert re.search(rf"^  {re.escape(room)} +{re.escape(line)}$", text, flags=re.M), room


def test_the_readme_is_short_beside_its_tree() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    tree = re.search(r"<!-- table: tree -->.*?<!-- end -->", text, flags=re.S)
    assert tree is not None
    assert len(text.replace(tree[0], "").splitlines()) <= 120
