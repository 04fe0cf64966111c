"""What a run costs on one GPU: its start and its steps; and whether their sum foretells another run.

    python benchmarks/scale.py MODELS DATA TEXT OUT [--json results/scale-cuda.json]

MODELS holds gte/, DATA sst2/, TEXT is a file to pretrain on. Every kind of run is trained with two lengths,
which give the seconds of its start and of a step, and with a third, which the first two must foretell. Each
is a process of its own, as a user starts it, one after the other; the GPU must have nothing else to do.
"""

import argparse
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

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


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The seconds of a kind of run: a start, some for each step, and how a third run was foretold."""

    name: str
    command: str
    steps: tuple[int, ...]
    seconds: tuple[float, ...]

    @property
    def step(self) -> float:
        (few, more), (short, longer) = self.steps[:2], self.seconds[:2]
        return (longer - short) / (more - few)

    @property
    def start(self) -> float:
        return self.seconds[0] - self.step * self.steps[0]

    @property
    def foretold(self) -> float:
        return self.start + self.step * self.steps[2]


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
        seconds_of(
            [*filled, str(min(lengths)), "--out", f"{options.out}/{number}-first"], options.out / "log"
        )
        seconds = [
            seconds_of(
                [*filled, str(length), "--out", f"{options.out}/{number}-{length}"], options.out / "log"
            )
            for length in lengths
        ]
        cost = Cost(name=name, command=command, steps=tuple(lengths.values()), seconds=tuple(seconds))
        parts = {key: round(getattr(cost, key), 4) for key in ("start", "step", "foretold")}
        found.append(asdict(cost) | parts)
        print(json.dumps(found[-1]), flush=True)
        if options.json:
            options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
