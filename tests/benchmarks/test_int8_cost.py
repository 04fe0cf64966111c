"""What few bits cost: each form of each seed is exported once, and what the file has stays."""

import json
from pathlib import Path

import pytest

from benchmarks import int8_cost
from bermo.ship.export.spec import ExportSpec


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    """The models that were exported, each to what form; int8 loses a point."""
    calls: list[tuple[str, str, int]] = []

    def write(model: Path, out: Path, spec: ExportSpec) -> None:
        calls.append((model.parent.name, spec.to, spec.keep_fp32))
        out.mkdir(parents=True)
        after = 89.0 if spec.to == "onnx-int8" else 90.0
        compared = {"score_before": 90.0, "score_after": after, "same_answers": 0.987}
        (out / "export.json").write_text(json.dumps({"compared": compared, "num_bytes": 7}))

    monkeypatch.setattr(int8_cost, "export", write)
    return calls


def test_every_seeds_model_is_exported_once_and_known_rows_stay(
    tmp_path: Path, exported: list[tuple[str, str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in (1, 2):
        model = tmp_path / "run" / f"seed-{seed}" / "model"
        model.mkdir(parents=True)
        (model / "config.json").write_text("{}")
    (tmp_path / "run" / "seed-3").mkdir()
    path = tmp_path / "known.json"
    path.write_text(json.dumps({"note": "n", "rows": [{"model": "other", "seeds": {}}]}))
    words = ["int8_cost", str(tmp_path / "rows"), str(tmp_path / "out"), f"a=b={tmp_path / 'run'}"]
    monkeypatch.setattr("sys.argv", [*words, "--json", str(path), "--forms", "int8,kept"])
    int8_cost.main()
    assert exported == [(f"seed-{seed}", "onnx-int8", kept) for seed in (1, 2) for kept in (0, 4)]
    monkeypatch.setattr("sys.argv", [*words, "--json", str(path)])
    int8_cost.main()
    assert [to for _, to, _ in exported[4:]] == ["openvino-int8"] * 2
    known = json.loads(path.read_text())
    other, row = known["rows"]
    assert (known["note"], other["model"], row["model"]) == ("n", "other", "a=b")
    assert row["seeds"]["1"]["fp32"] == 90.0
    assert row["seeds"]["1"]["int8"] == {"score": 89.0, "same_answers": 98.7, "bytes": 7}
    assert set(row["seeds"]["2"]) == {"fp32", "int8", "kept", "openvino"}
