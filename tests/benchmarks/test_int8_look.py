"""What int8 costs a training, and rows that name what differs from the dense training."""

import json
from pathlib import Path

from benchmarks.int8_look import look, rows
from bermo.data.load import load_task
from bermo.encoders.backbone import load_tokenizer
from bermo.models.tasks import BermoForSequenceClassification
from bermo.runs.task_file import trained_task, write_task
from bermo.ship.runtimes.run_data import write_rows
from bermo.spec import DataSpec


def write(folder: Path, lr: float, found: dict[str, float] | None) -> None:
    folder.mkdir(parents=True)
    (folder / "result.json").write_text("{}")
    spec = {"train": {"lr": lr, "epochs": 3.0}, "distill": {"teacher": str(folder)}, "seeds": [1]}
    (folder / "spec.json").write_text(json.dumps({"spec": spec}))
    if found is not None:
        (folder / "diag.json").write_text(json.dumps(found))


def test_a_row_says_what_differs_from_the_dense_training(tmp_path: Path) -> None:
    write(tmp_path / "dense" / "seed-1" / "1-train", 1e-4, {"fp32": 91.0})
    write(tmp_path / "low" / "seed-1" / "1-train", 2e-5, {"fp32": 90.0})
    write(tmp_path / "low" / "seed-2" / "1-train", 2e-5, None)
    assert rows(tmp_path, []) == [
        {"method": "dense", "changes": {}, "seeds": {"1": {"fp32": 91.0}}},
        {"method": "low", "changes": {"train.lr": 2e-5}, "seeds": {"1": {"fp32": 90.0}}},
    ]


def test_int8_moves_logits_more_than_its_weights_alone(tmp_path: Path, small_encoder: Path) -> None:
    model = BermoForSequenceClassification.from_backbone(str(small_encoder), mix=None, num_labels=2)
    model.save_pretrained(tmp_path / "model")
    load_tokenizer(str(small_encoder)).save_pretrained(tmp_path / "model")
    data = DataSpec(task="box/tense", limit=40)
    task = load_task(data)
    write_task(tmp_path / "model", trained_task(task, data))
    moved = look(tmp_path / "model", write_rows(task, task.train, tmp_path / "rows.jsonl"))["moved"]
    assert moved["fp32"] == 0
    assert 0 < moved["weights_int8"] < moved["fake_int8"] < 1
    assert moved["inputs_int8"] > 0
