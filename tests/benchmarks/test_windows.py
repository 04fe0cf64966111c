"""The benchmark of windows times both ways of the same layers."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import windows


def test_both_ways_are_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "windows.json"
    monkeypatch.setattr(sys, "argv", ["windows", "--tiny", "--out", str(out)])
    windows.main()
    (row,) = json.loads(out.read_text())["rows"]
    assert row["length"] == 512
    assert row["mask_ms"] > 0
    assert row["blocks_ms"] > 0
