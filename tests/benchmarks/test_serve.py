"""What the load test of the server keeps, and the table that is made of it."""

import json
from pathlib import Path

import pytest

from benchmarks.serve import LOST, Load, keep
from scripts.tables import serve


def test_an_entry_of_another_name_stays_and_the_table_has_a_row_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = Load(over=2.0)
    for status, seconds in ((200, 0.1), (200, 0.3), (503, 0.1), (LOST, 0.1)):
        load.count(status, seconds)
    facts = load.facts()
    found = {"naive": facts, "bermo": facts, "times_naive": 1.0, "stop": facts, "twice": facts}
    for name in ("torch", "int8"):
        keep(tmp_path / "serve.json", name, found)
    known = json.loads((tmp_path / "serve.json").read_text())
    monkeypatch.setattr(serve, "RESULTS", tmp_path)
    monkeypatch.setattr(serve, "read", lambda name: known)
    first, second = serve.load().splitlines()[2:]
    assert first == "| torch | 1.0 | 1.0 | 1.00 × | 298 ms | 298 ms | 1 | 1.0 | 298 ms | 1 |"
    assert second.startswith("| int8 | 1.0")
