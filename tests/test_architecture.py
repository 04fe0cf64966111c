"""The house: imports go only downwards, heavy libraries stay on their floors, files stay small."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "bermo"
FLOORS = {
    "errors": 0, "files": 0, "spec": 0, "figures": 0, "pretrain_spec": 0,
    "nn": 1, "recipes": 1, "reach": 1,
    "families": 2, "inside": 2, "backbone": 2, "sites": 2, "relations": 2, "attention": 2,
    "structure": 2, "places": 2, "data": 2,
    "encoder": 3, "fuse": 3, "model": 3, "pretraining": 3,
    "train": 4, "step": 4, "graphs": 4, "devices": 4, "feed": 4, "signals": 4, "fold": 4, "callback": 4, "prune": 4, "criteria": 4, "job": 4, "schedule": 4,
    "checkpoint": 4, "runs": 4, "vectors": 4, "gates": 4, "members": 4, "stack": 4, "optimiser": 4,
    "methods": 5, "analyse": 5, "ship": 5,
    "report": 6,
    "verbs": 7, "cli": 8, "__main__": 8, "__init__": 8,
}  # fmt: skip
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))


def floor(module: str) -> int:
    return FLOORS[module.split(".")[1] if "." in module else "__init__"]


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts)


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_go_only_downwards(path: Path) -> None:
    own = floor(name_of(path))
    for target in imports(path):
        if target.startswith("bermo."):
            assert floor(target) <= own, f"{name_of(path)} (floor {own}) imports {target}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_heavy_libraries_stay_on_their_floors(path: Path) -> None:
    roots = {target.split(".")[0] for target in imports(path)}
    own = floor(name_of(path))
    assert "torch" not in roots or own > 0
    assert "transformers" not in roots or own >= 2
    assert "pickle" not in roots


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_file_is_long_and_none_has_an_empty_name(path: Path) -> None:
    assert path.stem not in ("utils", "common", "helpers", "base", "misc")
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 350
