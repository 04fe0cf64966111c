"""What the GPU machine sends home comes back as it was: benchmarks/ship_pack.py."""

import json
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from transformers import AutoModel

from benchmarks.ship_pack import pack, shortened, unpack
from bermo.methods.student import student_from_teacher
from bermo.models.tasks import BermoForSequenceClassification
from tests.tiny import make_batch, save_backbone


def _leave_run(runs: Path, name: str, encoder: Path, num_layers: int, score: float | None) -> None:
    """Write a run like ship_gpu.sh: trained layers, frozen embeddings; without a score it was stopped."""
    whole = BermoForSequenceClassification.from_backbone(str(encoder), mix=None, num_labels=2)
    model = student_from_teacher(whole, range(1, num_layers + 1))
    with torch.no_grad():
        for key, value in model.named_parameters():
            if "embeddings" not in key:
                value.add_(0.002 * torch.randn_like(value))
    folder = runs / name / "seed-9"
    model.save_pretrained(folder / "model")
    (runs / name / "spec.json").write_text(json.dumps({"spec": {"name": name}}), encoding="utf-8")
    rows = [{"step": 1, "loss": 1.0}, {"step": 1, "valid/accuracy": 50.0}]
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    if score is not None:
        (folder / "result.json").write_text(json.dumps({"score": score}), encoding="utf-8")


def test_students_come_home_as_they_were(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    encoder, runs, home = save_backbone("bert", tmp_path / "encoder"), tmp_path / "runs", tmp_path
    _leave_run(runs, "alone-1", encoder, 1, 80.0)
    _leave_run(runs, "two", encoder, 2, None)
    state = AutoModel.from_pretrained(encoder).state_dict()
    known = {f"bermo.backbone.{key}": value for key, value in state.items()}
    pack(
        Namespace(runs=runs, teacher=None, loads=1, room=1.0, out=home / "packed"),
        known,
    )
    assert "two: 50.00" in (printed := capsys.readouterr().out)
    assert "stopped, packed" in printed
    unpack(home / "packed-1", home / "students", known, encoder)
    for name in ("alone-1", "two"):
        there = BermoForSequenceClassification.from_pretrained(runs / name / "seed-9" / "model")
        here = BermoForSequenceClassification.from_pretrained(home / "students" / name)
        batch = make_batch("bert")
        with torch.no_grad():
            wanted, got = there(**batch).logits, here(**batch).logits
        assert (wanted - got).norm() / wanted.norm() < 2e-3


def test_frozen_tensors_stay_behind_and_near_ones_take_a_byte() -> None:
    torch.manual_seed(0)
    known = {name: torch.randn(8, 8) for name in ("frozen", "near", "far")}
    state = {
        "frozen": known["frozen"].clone(),
        "near": known["near"] + 0.01 * torch.randn(8, 8),
        "far": torch.randn(8, 8),
        "large": torch.full((8, 8), 1e5),
        "vector": torch.randn(8),
    }
    kept = shortened(state, known)
    assert {name: str(value.dtype) for name, value in kept.items()} == {
        "near.step": "torch.int8",
        "near.scale": "torch.float32",
        "far": "torch.float16",
        "large": "torch.float32",
        "vector": "torch.float32",
    }
