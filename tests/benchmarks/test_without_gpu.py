"""A benchmark of the GPU on a machine without one ends in a sentence."""

import importlib
import sys
from pathlib import Path

import pytest
import torch


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("name", ["attend", "choose", "step"])
def test_a_benchmark_of_the_gpu_says_that_there_is_none(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name])
    # A script finds the files beside it by this path.
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"benchmarks.{name}").main()
    assert ended.value.code == 2
    assert "torch sees none on this machine" in capsys.readouterr().err
