"""What a training wrote of its steps becomes one curve a seed, with its layers in order."""

import json
from pathlib import Path

import pytest

from benchmarks.curves import curves

LOGGED = {"loss": 0.61234, "gradient_norm": 3.0, "density": 0.5, "kept/layer.1.output.dense": 0.5}
GRADIENTS = {f"gradient/layer.{number}": number / 7 for number in (10, 2, 1)}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    for run, seed, rows in (
        ("mpnet-sst2-size-random-plain.9-25", 25, [{"step": 7} | LOGGED | GRADIENTS]),
        ("mpnet-sst2-dense-random-plain.9", 9, [{"step": 7, "loss": 0.7} | GRADIENTS]),
        ("gte-mrpc-soft.9", 9, [{"step": 7} | LOGGED | GRADIENTS]),
    ):
        folder = tmp_path / run / f"seed-{seed}"
        folder.mkdir(parents=True)
        lines = [{"step": 0, "valid/accuracy": 50.0}, *rows]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines), "utf-8")
    return tmp_path


def test_each_seed_has_a_curve_under_its_own_name(out: Path) -> None:
    found = curves(out, "mpnet-sst2-(size|dense)-random")
    assert list(found) == ["mpnet-sst2-dense-random-plain-9", "mpnet-sst2-size-random-plain-25"]
    assert found["mpnet-sst2-size-random-plain-25"] == [
        {"step": 7, "loss": 0.6123, "density": 0.5, "gradient": [0.143, 0.286, 1.43]}
    ]


def test_a_dense_training_keeps_all_its_weights(out: Path) -> None:
    (row,) = curves(out)["mpnet-sst2-dense-random-plain-9"]
    assert row["density"] == 1.0
