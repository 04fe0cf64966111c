"""The methods and seeds of atlases that are made side by side until a time is over."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModel

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "atlas_crowd.py"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "sst2"
    folder.mkdir(parents=True)
    rows = [("a fine film", 1), ("a dull film", 0), ("fine and warm", 1), ("dull and cold", 0)] * 5
    text = "sentence\tlabel\n" + "".join(f"{words}\t{label}\n" for words, label in rows)
    for name in ("train.tsv", "dev.tsv", "test-labeled.tsv"):
        (folder / name).write_text(text, encoding="utf-8")
    return folder.parent


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    """The small box with one layer and random weights."""
    from tests.small_box import SMALL_BOX

    folder = tmp_path / "encoder"
    shutil.copytree(SMALL_BOX, folder)
    config = AutoConfig.from_pretrained(folder)
    config.num_hidden_layers = 1
    torch.manual_seed(0)
    AutoModel.from_config(config).save_pretrained(folder)
    return folder


def test_what_is_wanted_is_made_and_scored_with_its_dense_model(
    tmp_path: Path, data: Path, encoder: Path
) -> None:
    wanted, out = tmp_path / "wanted.txt", tmp_path / "out"
    wanted.write_text("sst2 onnx 2\nsst2 tf-idf 2\n", encoding="utf-8")
    words = [sys.executable, str(SCRIPT), str(encoder), str(data), str(out), str(wanted)]
    words += ["--trainings", "1", "--exports", "1", "--scorers", "1", "--device", "cpu", "--seconds", "500"]
    environment = os.environ | {"BERMO_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=550, check=False)
    assert "3 of 3 scored" in done.stdout, done.stdout + done.stderr
    for name in ("dense", "onnx", "tf-idf"):
        known = json.loads((out / "sst2" / name / "seed-2" / "measured.json").read_text(encoding="utf-8"))
        assert 0 <= known["score"] <= 100
    assert (out / "sst2" / "onnx" / "seed-2" / "1-export").is_dir()
