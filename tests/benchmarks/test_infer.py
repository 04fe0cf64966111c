"""The benchmark of inference runs in a tiny form without a GPU."""

import json
import sys
from pathlib import Path

import pytest

from tests.tiny import save_backbone


def test_every_row_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from benchmarks import infer

    model, out = save_backbone("bert", tmp_path / "model"), tmp_path / "rows.json"
    words = (
        f"infer {model} --device cpu --count 6 --batch 4 --repeats 1 --calls 1 --precisions fp32 --out {out}"
    )
    monkeypatch.setattr(sys, "argv", words.split())
    infer.main()
    rows = json.loads(out.read_text())["rows"]
    assert [row["name"] for row in rows] == [
        "Hugging Face, fp32",
        "ours, fp32",
        "ours with the mix, fp32",
        "student, Hugging Face, fp32",
        "student, ours, fp32",
    ]
    assert all(row["texts_a_second"] > 0 and row["latency_ms"] > 0 for row in rows)
