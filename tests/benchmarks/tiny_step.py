"""benchmarks/step.py in its tiny form, without a GPU."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def run(monkeypatch: pytest.MonkeyPatch, out: Path, *words: str) -> list[dict[str, Any]]:
    # A script finds the files beside it by this path.
    monkeypatch.syspath_prepend(BENCHMARKS)
    tiny = ["--tiny", "--batch", "2", "--lengths", "8", "--steps", "1", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["step", *words, *tiny])
    import step

    step.main()
    rows: list[dict[str, Any]] = json.loads(out.read_text())["rows"]
    return rows
