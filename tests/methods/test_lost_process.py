"""One of several processes is killed: the others end with a sentence, and the same command goes on."""

import json
import time
from pathlib import Path

import pytest

from tests.pairs import Pairs

SCRIPT = """
import os, signal, sys
import bermo.training.loop
from bermo.cli import main
out, model, victim = sys.argv[1:]
seed = bermo.training.loop.seed_step
def die(number, step, rank):
    if step == 3 and os.environ["RANK"] == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    seed(number, step, rank)
bermo.training.loop.seed_step = die
sys.exit(main([
    "train", "--model", model, "--task", "box/tense", "--limit", "24", "--epochs", "2", "--batch-size", "8",
    "--device", "cpu", "--max-length", "16", "--head", "random", "--pooling", "first", "--contrast", "0",
    "--checkpoint-minutes", "0", "--out", out,
]))
"""


def losses(out: Path) -> list[float]:
    rows = map(json.loads, (out / "seed-1" / "metrics.jsonl").read_text().splitlines())
    return [row["loss"] for row in rows if "loss" in row]


def test_the_others_end_with_a_sentence_and_the_same_command_goes_on(
    tmp_path: Path, small_encoder: Path, pairs: Pairs
) -> None:
    script, out = tmp_path / "four.py", tmp_path / "run"
    script.write_text(SCRIPT, encoding="utf-8")
    # The one that writes, then another.
    for victim in (0, 3):
        codes = tuple(-9 if rank == victim else 1 for rank in range(4))
        started = time.monotonic()
        pairs.run(script, str(out), str(small_encoder), str(victim), codes=codes)
        assert time.monotonic() - started < 60
        for rank in {*range(4)} - {victim}:
            said = script.with_suffix(f".{rank}.log").read_text()
            assert said.splitlines()[-1].startswith("bermo: Another process of this training has ended"), said
            assert "Traceback" not in said
    pairs.run(script, str(out), str(small_encoder), "nobody", codes=(0, 0, 0, 0))
    pairs.run(script, str(tmp_path / "whole"), str(small_encoder), "nobody", codes=(0, 0, 0, 0))
    # Four are summed in another order in the first step after a start.
    assert losses(out) == pytest.approx(losses(tmp_path / "whole"), rel=1e-4)
