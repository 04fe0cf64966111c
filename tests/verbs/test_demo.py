"""The demo trains, prunes and ships, and ends with what the user has now."""

from dataclasses import replace
from pathlib import Path

import pytest

from bermo.cli import main
from bermo.report.terminal import BAR_WIDTH
from bermo.verbs import demo


@pytest.mark.usefixtures("shallow_box", "quick_traces", "bench_here")
def test_the_demo_ends_with_a_shipped_model_and_a_command_that_uses_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its smallest form: no score is wanted, and the bench is short."""
    small = replace(
        demo.ATLAS, methods=("dense", "int8"), pick="best score", batches=(1,), lengths=(8,), rounds=1
    )
    monkeypatch.setattr(demo, "ATLAS", small)
    monkeypatch.setattr(demo, "DATA", replace(demo.DATA, limit=32, max_length=16))
    assert main(["demo", "--out", str(tmp_path / "demo")]) == 0
    shown = capsys.readouterr().out
    assert "is the subject of a sentence singular or plural?" in " ".join(shown.split())
    assert shown.count("█") > 2 * BAR_WIDTH
    picked = str(tmp_path / "demo" / "picked")
    last = shown.rpartition("\n\n")[2]
    assert last.startswith("What you have now and did not have before")
    assert last.endswith(f'bermo predict {picked} --text "{demo.TEXT}"\n')
    assert main(["predict", picked, "--text", demo.TEXT]) == 0
    assert "singular" in (answer := capsys.readouterr().out) or "plural" in answer


def test_without_onnx_the_demo_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    assert main(["demo"]) == 2
    assert 'pip install "bermo[onnx]"' in capsys.readouterr().err
