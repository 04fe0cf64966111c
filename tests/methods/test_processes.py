"""Pretraining and structured pruning by one, two and four processes: the same losses, the same units left."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from bermo.cli import main
from tests.pairs import Pairs

SCRIPT = "import sys\nfrom bermo.cli import main\nsys.exit(main(sys.argv[1:]))\n"
TEXTS = ("the old man saw a dog near the river .", "a small girl reads books in the garden .", "we know it .")


def losses(out: Path) -> list[float]:
    rows = map(json.loads, (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [row["loss"] for row in rows if "loss" in row]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "several.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return path


def test_taught_pretraining_by_several_processes_has_one_s_losses(
    tmp_path: Path, script: Path, small_encoder: Path, pairs: Pairs
) -> None:
    text = tmp_path / "texts.txt"
    text.write_text("\n\n".join(f"{TEXTS[k % 3]} {TEXTS[k % 2]}" for k in range(60)), encoding="utf-8")
    shape = "--config tiny --layers 2 --width 32 --heads 2 --intermediate 64 --length 16 --vocabulary 300"
    words = f"pretrain --text {text} {shape} --steps 6 --batch-size 8 --looks 1 --held-out 0.1 --device cpu"
    words += f" --teacher {small_encoder}"
    assert main([*words.split(), "--cache", str(tmp_path / "cache"), "--out", str(tmp_path / "1")]) == 0
    for count in (2, 4):
        own = [*words.split(), "--cache", str(tmp_path / "cache"), "--out", str(tmp_path / str(count))]
        pairs.run(script, *own, codes=(0,) * count)
        assert losses(tmp_path / str(count)) == pytest.approx(losses(tmp_path / "1"), rel=1e-4)
        one, several = (
            load_file(tmp_path / name / "model" / "model.safetensors") for name in ("1", str(count))
        )
        assert all(np.allclose(one[name], several[name], atol=1e-4) for name in one)


def test_structured_pruning_by_several_processes_leaves_one_s_units(
    tmp_path: Path, script: Path, small_encoder: Path, pairs: Pairs
) -> None:
    words = (
        f"train --model {small_encoder} --task box/tense --limit 24 --epochs 2 --batch-size 8 --device cpu"
    )
    words += " --max-length 16 --contrast 0 --prune heads-and-neurons --density 0.5 --head random"
    assert main([*words.split(), "--out", str(tmp_path / "1")]) == 0
    zeros = {}
    for count in (1, 2, 4):
        out = tmp_path / str(count)
        if count > 1:
            pairs.run(script, *words.split(), "--out", str(out), codes=(0,) * count)
        weights = load_file(out / "model" / "model.safetensors")
        zeros[count] = {
            name: np.flatnonzero(~value.any(axis=-1)) for name, value in weights.items() if value.ndim == 2
        }
        assert losses(out / "seed-1") == pytest.approx(losses(tmp_path / "1" / "seed-1"), rel=1e-4)
    assert sum(map(len, zeros[1].values())) > 10
    for count in (2, 4):
        assert all(np.array_equal(zeros[1][name], zeros[count][name]) for name in zeros[1])
