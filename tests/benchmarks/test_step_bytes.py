"""Bytes and launches of a layer are counted without a GPU, and no kernel runs."""

import json
import sys
from pathlib import Path

import pytest
import torch

from tests.benchmarks.tiny_step import BENCHMARKS

pytest.importorskip("triton", reason="needs Triton")


def test_a_fused_layer_moves_less_through_memory_in_fewer_launches(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import step_bytes

    words = ["--families", "modernbert", "--tiny", "--batch", "2", "--length", "8"]
    monkeypatch.setattr(sys, "argv", ["step_bytes", *words, "--out", str(tmp_path / "rows.json")])
    step_bytes.main()
    eager, plain, fused = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert eager["launches"] > plain["launches"] > 2 * fused["launches"]
    kernels = {"prenorm_forward": 2, "prenorm_backward": 2, "gated_backward": 1, "rotary_forward": 1}
    assert {name: fused["by_name"][name][1] for name in kernels} == kernels
    assert not kernels.keys() & plain["by_name"].keys()
    assert "modernbert  fused" in capsys.readouterr().out


def test_an_expanded_tensor_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import step_bytes

    assert step_bytes.size_of(torch.zeros(1, 5).expand(3, 5)) == 20
    assert step_bytes.size_of(torch.zeros(3, 5, dtype=torch.bfloat16)) == 30
    assert step_bytes.size_of(torch.zeros(0, 5)) == 0
