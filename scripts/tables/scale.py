"""Tables of docs/scale.md: what many runs and a large training cost on 1, 8 and 64 GPUs.

A run takes start + steps · step. Runs of a comparison share nothing, so G GPUs take ⌈runs / G⌉ of them one
after the other. A step of one training on G GPUs takes what the slower of two takes, launching its kernels or
computing its share of the rows, and then the exchange of gradients by a ring: 2 (G − 1) / G · bytes / B.
"""

import math
import re
from dataclasses import dataclass

from scripts.tables.numbers import RESULTS, read, table
from scripts.tables.speed import command_seconds

GPUS = (1, 8, 64)
EPOCH_STEPS = 2105
RUNS, RUN_STEPS = 20 * 3, 3 * EPOCH_STEPS
PRETRAINING_STEPS, ROWS, MEASURED_ROWS = 100_000, 256, 32
GRADIENT_BYTES = 110e6 * 4
BYTES_A_SECOND = {8: 200e9, 64: 40e9}
"""Assumed, not measured: NVLink within a machine of 8, and 8 × 400 Gbit/s between machines."""
HOUR = 3600.0


@dataclass(frozen=True, kw_only=True)
class Run:
    """The seconds of a pruning run's start and of one of its steps."""

    start: float
    step: float


def pruning_run() -> Run:
    """Divide the process of an epoch (results/start-cuda.txt, kernels built) into its steps and the rest."""
    text = (RESULTS / "start-cuda.txt").read_text(encoding="utf-8")
    again = re.split(r"^== .*$", text, flags=re.M)[2]
    spent = {
        line[1].strip(): float(line[2]) for line in re.finditer(r"^(.+?) +([\d.]+) .*$", again, flags=re.M)
    }
    # What a step computes is waited for when its loss is read, for the log.
    steps = spent["steps, captures among them"] - spent["capturing steps"] + spent["logging"]
    return Run(start=command_seconds(text) - steps, step=steps / EPOCH_STEPS)


def step_ms(name: str) -> float:
    """Milliseconds of BERT-base's step at batch 32 and length 128."""
    rows = read("step-cuda.json")["rows"]
    return float(next(row["median_ms"] for row in rows if row["name"] == name and row["length"] == 128))


def parts() -> str:
    """What the other tables are computed from."""
    run = pruning_run()
    rows = [
        ["gte-small pruned on SST-2: the start of a run", f"{run.start:.1f} s", "start-cuda.txt"],
        ["the same: a step of 32 sentences", f"{1000 * run.step:.2f} ms", "start-cuda.txt"],
        ["BERT-base: a step of 32 × 128 tokens", f"{step_ms('plain, auto'):.2f} ms", "step-cuda.json"],
        ["the same without CUDA graphs", f"{step_ms('plain, off'):.2f} ms", "step-cuda.json"],
    ]
    return table(["part", "measured", "in results/"], rows)


def checked() -> str:
    """What the parts foretell of whole processes, and what these took (results/scale-cuda.json)."""
    run = pruning_run()
    pretraining = Run(start=run.start, step=step_ms("plain, auto") / 1000 * ROWS / MEASURED_ROWS)
    rows = [
        [
            known["name"],
            f"{steps:,}",
            f"{seconds:.1f} s",
            f"{loop:.1f} s",
            f"{part.start + steps * part.step:.1f} s",
        ]
        for known, part in zip(read("scale-cuda.json")["rows"], (run, pretraining), strict=True)
        for steps, seconds, loop in zip(known["steps"], known["seconds"], known["loop"], strict=True)
    ]
    return table(["run", "steps", "measured", "of it the loop", "foretold"], rows)


def comparison() -> str:
    """A comparison of twenty methods with three seeds: three epochs of SST-2 each."""
    part = pruning_run()
    run = part.start + RUN_STEPS * part.step
    rows = []
    for gpus in GPUS:
        wall = math.ceil(RUNS / gpus) * run
        rows.append(
            [str(gpus), f"{wall / 60:.1f}", f"{wall * gpus / HOUR:.2f}", f"{100 * part.start / run:.0f} %"]
        )
    return table(["GPUs", "minutes", "GPU hours held", "of a run's time is its start"], rows)


def pretraining_step(gpus: int, rows: int) -> float:
    """Seconds of a step of `rows` rows of 128 tokens on so many GPUs."""
    computed = step_ms("plain, auto") / 1000 * rows / MEASURED_ROWS / gpus
    if gpus == 1:
        return computed
    exchange = 2 * (gpus - 1) / gpus * GRADIENT_BYTES / BYTES_A_SECOND[gpus]
    return max(step_ms("plain, off") / 1000, computed) + exchange


def pretraining() -> str:
    """A base encoder on 3.3 billion tokens: the batch stays, or grows with the GPUs."""
    rows = []
    for gpus in GPUS:
        same = PRETRAINING_STEPS * pretraining_step(gpus, ROWS)
        grown = PRETRAINING_STEPS / gpus * pretraining_step(gpus, ROWS * gpus)
        rows.append([str(gpus), *(f"{time / HOUR:.2f} ({time * gpus / HOUR:.1f})" for time in (same, grown))])
    head = ["GPUs", f"hours (GPU hours), {ROWS} rows a step", f"hours (GPU hours), {ROWS} rows a GPU"]
    return table(head, rows)


def limits() -> str:
    """What 10,000 folders and forty real runs took."""
    many, side = read("many-runs-x86.json"), read("side-by-side-x86.json")
    rows = [
        [f"`bermo jobs` on {many['runs']:,} runs", f"{many['seconds']['jobs']:.1f} s"],
        [f"`bermo report` on {many['runs']:,} runs", f"{many['seconds']['report']:.1f} s"],
        [
            f"{side['runs']} runs by {side['workers']} workers against the sum of their own times",
            f"{side['ratio']:.2f} ×",
        ],
    ]
    return table(["", "measured"], rows)
