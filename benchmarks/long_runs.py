"""Memory of long commands: a training of many steps and the answers to many lines, on a very small model.

    python benchmarks/long_runs.py --steps 20000 --lines 1000000

The resident memory of this process is read after each tenth of the work. It is flat where the last number is
that of the first tenth, but for what the allocator keeps: most of it is packages that are imported.
"""

import argparse
import json
import platform
import random
import sys
import tempfile
from pathlib import Path

import psutil
import torch
from transformers import AutoModel, BertConfig, BertTokenizerFast

from bermo.machine import processor
from bermo.methods.finetune import finetune
from bermo.progress import Quiet
from bermo.ship.runtimes.predict_file import predict_file
from bermo.ship.runtimes.spec import PredictSpec
from bermo.spec import RunSpec, replace_in

WORDS = ("good", "bad", "film", "the", "a", "cat", "dog", "sees", "plays", "long", "short", "day")
NUM_ROWS = 400
BATCH = 8
TENTHS = 10


class Watch(Quiet):
    """Reads the memory after each tenth of the work."""

    def __init__(self) -> None:
        self.total, self.mib = 0, dict[str, float]()

    def start(self, what: str, total: int, done: int) -> None:
        self.total = total
        self.mib.clear()  # of what came before: reading and tokenising

    def step(self, done: int, loss: float | None) -> None:
        tenth = TENTHS * done // max(1, self.total)
        name = f"{100 * tenth // TENTHS} %"
        if tenth and name not in self.mib:
            self.mib[name] = round(psutil.Process().memory_info().rss / 2**20, 1)
            print(name, self.mib[name], file=sys.stderr)


def make_encoder(folder: Path) -> Path:
    """Write an encoder of two layers with random weights, which knows a few words."""
    folder.mkdir()
    words = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS)
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    AutoModel.from_config(BertConfig(vocab_size=len(words), **sizes)).save_pretrained(folder)
    return folder


def write_texts(folder: Path, num_lines: int) -> tuple[Path, Path]:
    """Write labelled rows to train on, and lines to answer."""
    draw = random.Random(0)
    table, lines = folder / "rows.csv", folder / "lines.txt"
    rows = [
        f"{' '.join(draw.choices(WORDS[2:], k=4))} {WORDS[k % 2]},{WORDS[k % 2]}" for k in range(NUM_ROWS)
    ]
    table.write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    with lines.open("w", encoding="utf-8") as file:
        for _ in range(num_lines):
            file.write(" ".join(draw.choices(WORDS, k=4)) + "\n")
    return table, lines


def measure(folder: Path, num_steps: int, num_lines: int) -> dict[str, object]:
    """Train for so many steps, answer so many lines, and return the memory along the way."""
    table, lines = write_texts(folder, num_lines)
    spec = replace_in(
        RunSpec(),
        model={"backbone": str(make_encoder(folder / "encoder"))},
        data={"train": str(table), "valid": str(table), "cache": str(folder / "cache")},
        train={
            "epochs": num_steps * BATCH / NUM_ROWS,
            "batch_size": BATCH,
            "device": "cpu",
            "checkpoint_minutes": 0.2,
        },
    )
    training, predicting = Watch(), Watch()
    finetune(spec, folder / "run", training)
    metrics = folder / "run" / "seed-1" / "metrics.jsonl"
    answers = folder / "answers.jsonl"
    predict_file(folder / "run", lines, PredictSpec(device="cpu"), answers, predicting)
    return {
        "processor": f"{processor().name}, {platform.machine()}",
        "steps": num_steps,
        "training_mib": training.mib,
        "metrics_bytes": metrics.stat().st_size,
        "lines": num_lines,
        "predicting_mib": predicting.mib,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--lines", type=int, default=1_000_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        json.dump(measure(Path(folder), options.steps, options.lines), sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
