"""Every promise of SECURITY.md names the tests that hold it, and each of them exists."""

import ast
import re
from functools import cache

import pytest

from tests.docs.documents import ROOT, tables

PAGE = ROOT / "SECURITY.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def _promises() -> list[str]:
    (rows,) = [rows for before, rows in tables(PAGE)]
    return rows.strip().splitlines()[2:]


@cache
def _tests_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("promise", _promises(), ids=lambda line: line.split("|")[1].strip()[:40])
def test_every_promise_names_tests_that_exist(promise: str) -> None:
    named = NAMED.findall(promise)
    assert named, promise
    for path, name in named:
        assert name.startswith("test_"), name
        assert name in _tests_of(path), f"{path} has no {name}"


def test_there_are_promises_and_a_way_to_report() -> None:
    assert len(_promises()) >= 15
    assert "Report a vulnerability" in PAGE.read_text(encoding="utf-8")
