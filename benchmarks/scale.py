"""What a run costs on one GPU as a process of its own, and how much of it is the loop of steps.

    python benchmarks/scale.py MODELS DATA TEXT OUT [--json results/scale-cuda.json]

MODELS holds gte/, DATA sst2/, TEXT is a file to pretrain on. Every kind of run is trained with three lengths,
one after the other; the GPU must have nothing else to do. docs/scale.md compares what they took with what
start + steps · step foretells.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

TRAIN = "train --model {models}/gte --task sst2 --data {data}/sst2 --precision bf16 --epochs 1 --seeds 9,"
PRETRAIN = "pretrain --text {text} --config base --precision bf16 --looks 1 --limit 300"
KINDS = {
    "gte-small pruned, a step of 32 sentences": (
        f"{TRAIN} --prune movement --density 0.1 --limit",
        {3200: 100, 32000: 1000, 67349: 2105},
    ),
    "BERT-base pretrained, a step of 256 × 128 tokens": (f"{PRETRAIN} --steps", {20: 20, 100: 100, 200: 200}),
}
"""A command that ends with its length, and how many steps each length gives."""


def seconds_of(words: list[str], log: Path) -> float:
    """Run bermo in a process of its own; return how long it took."""
    began = time.monotonic()
    with log.open("w") as file:
        subprocess.run([sys.executable, "-m", "bermo", *words], stdout=file, stderr=file, check=True)
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name in ("models", "data", "text", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True)
    found = []
    for number, (name, (command, lengths)) in enumerate(KINDS.items()):
        filled = command.format(models=options.models, data=options.data, text=options.text).split()
        log, first = options.out / "log", options.out / f"{number}-first"
        # Kernels are built and texts are tokenized.
        seconds_of([*filled, str(min(lengths)), "--out", str(first)], log)
        row: dict[str, Any] = {"name": name, "command": command, "steps": list(lengths.values())}
        row |= {"seconds": [], "loop": []}
        for length in lengths:
            folder = options.out / f"{number}-{length}"
            row["seconds"].append(round(seconds_of([*filled, str(length), "--out", str(folder)], log), 1))
            row["loop"].append(loop_seconds(folder / "result.json"))
        found.append(row)
        print(json.dumps(row), flush=True)
        if options.json:
            content = {"device": torch.cuda.get_device_name(), "rows": found}
            options.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def loop_seconds(path: Path) -> float:
    """Return how long the steps of a run took, evaluations among them."""
    result = json.loads(path.read_text(encoding="utf-8"))
    return float(result["seeds"][0]["seconds"] if "seeds" in result else result["seconds"])


if __name__ == "__main__":
    main()
