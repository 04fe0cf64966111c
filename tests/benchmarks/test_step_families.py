"""The table of families runs in a tiny form without a GPU, and a family that fails is named."""

from pathlib import Path

import pytest

from tests.benchmarks.tiny_step import BENCHMARKS, run


def test_each_family_has_a_row_with_every_column(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = run(monkeypatch, tmp_path / "rows.json", "--families", "xlnet")
    assert row["ms"].keys() == {"plain", "pruned", "eager", "fused"}
    assert all(way["8"] > 0 for way in row["ms"].values())
    assert "not stacked: bermo.backbone (XLNetModel) has weights of its own" in capsys.readouterr().out


def test_our_plain_step_can_be_measured_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (row,) = run(monkeypatch, tmp_path / "rows.json", "--families", "gpt2", "--only", "plain")
    assert row["ms"].keys() == row["state"].keys() == {"plain"}


def test_a_family_that_fails_is_named_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import step_families

    def fail(*_: object) -> None:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(step_families, "ours", fail)
    monkeypatch.setattr(step_families, "theirs", lambda *_: ())
    rows = run(monkeypatch, tmp_path / "rows.json", "--families", "bert", "gpt2")
    assert [row["errors"]["plain"] for row in rows] == ["RuntimeError: no such kernel"] * 2
    assert "plain failed: RuntimeError: no such kernel" in capsys.readouterr().out


def test_long_texts_have_a_row_for_each_length(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import step_long

    monkeypatch.setattr(step_long, "LONG", {"modernbert": (128, 512)})
    rows = run(monkeypatch, tmp_path / "rows.json", "--long")
    assert [(row["length"], row["errors"]) for row in rows] == [(16, []), (64, [])]
    assert all(row["ms"] > 0 and row["eager_ms"] > 0 for row in rows)
