"""How long a training step takes on this machine's GPU, against Hugging Face's and against the floor.

    python benchmarks/step.py --out results/step-cuda.json
        BERT-base shape, batch 32, lengths 32 and 128, bf16, AdamW
    python benchmarks/step.py --width 384 --lengths 16 32             gte-small's shape
    python benchmarks/step.py --scores equal --only movement          all scores start at zero
    python benchmarks/step.py --without PART …                       these are not fused; with all of residual
        linear attention mix adam prenorm gated rotary bottleneck embeddings nothing; --each: each in turn
    python benchmarks/step.py --families --out results/step-families-cuda.json
        every family beside Hugging Face (step_families.py); --families deberta-v2 mpnet: these only;
        --only plain: our plain step alone; --without prenorm gated rotary: as for BERT;
        --compile: torch.compile too, slow; --tiny: tiny models on the CPU, to try the script
    python benchmarks/step.py --long --out results/step-long-cuda.json
        texts of 512 to 8,192 tokens, and the memory that they take (step_long.py); also with --tiny
    python benchmarks/step.py --kernels --steps 10 --out results/step-kernels-cuda.json
        where the microseconds go: the kernels of a step by kind and name (step_kernels.py); also with --tiny,
        and with --families modernbert gpt2 for our plain step of these

Rows: Hugging Face plain; the reference pruning algorithm (sorting for top-k masks) on Hugging Face's model;
ours plain; with the mix; with the mix and each pruning method. "auto" replays whole steps as CUDA graphs with
fused kernels, "exact" without these, "off" is the plain step. Weights are random, so only the time means
something. Scores are random too, unless --scores equal: a step in the middle of the schedule finds them
parted, and the digits of many equal ones are counted by the slow route. The parity check at the end compares
losses and masks of the fast and the plain step; its scores start equal, as in training.
"""

import argparse
import gc
import itertools
import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
import transformers
import triton
from step_families import beside, run_families
from step_kernels import run_kernels
from step_long import run_long
from step_shapes import SHAPED
from step_ways import METHODS, MIDDLE, Ours, hugging_face_bert, make_batch
from torch import Tensor

from bermo.nn.masks import top_masks_at
from bermo.training.fuse import Fused

# Measured on one H200: bf16 products, copies.
MATRIX_RATE, MEMORY_RATE = 790e12, 4.3e12


def measure(make: Callable[[], Any], options: argparse.Namespace, length: int) -> dict[str, float]:
    """Median milliseconds of a step, its first-use seconds and its peak memory."""
    # Graphs of the way before, which hold memory.
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    started = time.perf_counter()
    step = make()
    batches = [make_batch(options.batch, length, seed) for seed in range(4)]
    batches = [{k: v.pin_memory() for k, v in batch.items()} for batch in batches]
    for number in range(5):
        step(MIDDLE + number, batches[number % 4])
    torch.cuda.synchronize()
    ready = time.perf_counter() - started
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(options.steps + 1)]
    began = time.perf_counter()
    marks[0].record()
    for number in range(options.steps):
        step(MIDDLE + number, batches[number % 4])
        marks[number + 1].record()
    torch.cuda.synchronize()
    wall = (time.perf_counter() - began) / options.steps
    times = [a.elapsed_time(b) for a, b in itertools.pairwise(marks)]
    return {
        "median_ms": round(statistics.median(times), 3),
        "wall_ms": round(1000 * wall, 3),
        "ready_s": round(ready, 1),
        "peak_mib": round((torch.cuda.max_memory_allocated() - held) / 2**20),
    }


def floor(options: argparse.Namespace, length: int, kind: str) -> dict[str, float]:
    """The fewest operations and bytes: products three times; each weight, moment, gradient and score once."""
    width, tokens = options.width, options.batch * length
    weights = 12 * 12 * width * width
    # Frozen where something is pruned.
    embeddings = 31000 * width if kind == "dense" else 0
    operations = 6 * weights * tokens + 12 * 3 * 4 * tokens * length * width
    # An update reads weight, gradient and two moments and writes all but the gradient; the products read bf16
    # copies.
    bytes_moved = 28 * (weights * (2 if kind == "scored" else 1) + embeddings) + 3 * 2 * weights
    seconds = operations / MATRIX_RATE + bytes_moved / MEMORY_RATE
    return {"tflop": operations / 1e12, "gigabytes": bytes_moved / 1e9, "floor_ms": round(1000 * seconds, 3)}


def thresholds(options: argparse.Namespace) -> dict[str, float]:
    """Milliseconds to choose the masks of all matrices: ours, sorting, torch.topk."""
    from bermo.nn.fast.select import TopSelector

    width = options.width
    shapes = ([(width, width)] * 4 + [(4 * width, width), (width, 4 * width)]) * 12
    scores = [torch.randn(shape, device="cuda") for shape in shapes]
    masks = [torch.ones(shape, dtype=torch.bool, device="cuda") for shape in shapes]
    kept = torch.tensor([score.numel() // 10 for score in scores], device="cuda")
    selector = TopSelector(masks, scores=scores)
    selector.select_(kept)
    slow = top_masks_at(scores, kept, is_global=False)
    assert all(torch.equal(a, b) for a, b in zip(masks, slow, strict=True))
    counts = kept.tolist()
    ways: dict[str, Callable[[], object]] = {
        "ours": lambda: selector.select_(kept),
        "sort": lambda: [score.flatten().sort(descending=True) for score in scores],
        "topk": lambda: [s.flatten().topk(k) for s, k in zip(scores, counts, strict=True)],
        "one_pass": lambda: [score.sum() for score in scores],
    }
    measured = {"scores": float(sum(score.numel() for score in scores))}
    for name, way in ways.items():
        measured[f"{name}_ms"] = _graph_ms(way)
    return measured


def _graph_ms(way: Callable[[], object], repeats: int = 20) -> float:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        way()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        way()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    marks[0].record()
    for mark in marks[1:]:
        graph.replay()
        mark.record()
    torch.cuda.synchronize()
    return round(statistics.median(a.elapsed_time(b) for a, b in itertools.pairwise(marks)), 4)


def parity(
    options: argparse.Namespace, precision: str, steps: int, way: str, method: str = "movement"
) -> dict[str, float | list[float]]:
    """Losses and masks of a fast and the plain step over a run through the pruning schedule, dropout off.

    Two runs whose sums are rounded differently part for good once a mask differs, so the gap is also given
    for the first steps.
    """
    small = argparse.Namespace(**vars(options) | {"width": 384, "scores": "equal"})
    batches = [make_batch(options.batch, (24, 32)[seed % 2], seed) for seed in range(8)]
    batches = [{k: v.pin_memory() for k, v in batch.items()} for batch in batches]
    plan = [100 + 9800 * number // steps for number in range(steps)]
    losses: list[list[float]] = []
    masks: list[list[list[Tensor]]] = []
    for fast in ("off", way):
        step = Ours(small, "across", METHODS[method], fast, precision, dropout=0.0)
        losses.append([])
        masks.append([])
        for number in range(steps):
            step(plan[number], batches[number % 8])
            losses[-1].append(step.loss())
            if number % 20 == 19:
                assert step.pruner is not None
                masks[-1].append([mask.mask.clone() for mask in step.pruner.masks])
        del step
        torch.cuda.empty_cache()
    gaps = [abs(a - b) / abs(a) for a, b in zip(*losses, strict=True)]
    same = [
        sum(int((x == y).sum()) for x, y in zip(a, b, strict=True)) / sum(x.numel() for x in a)
        for a, b in zip(*masks, strict=True)
    ]
    blocks = range(0, steps, 20)
    means = [[sum(way[k : k + 20]) / 20 for k in blocks] for way in losses]
    return {
        "largest_relative_gap": max(gaps),
        "gap_of_first_10_steps": max(gaps[:10]),
        "equal_masks_every_20_steps": same,
        "mean_losses_plain": means[0],
        "mean_losses_fast": means[1],
        "steps": steps,
    }


def make_rows(options: argparse.Namespace) -> dict[str, tuple[Callable[[], Any], str]]:
    """What is measured: how to make each, and whether it is dense, pruned, or pruned by scores."""
    rows: dict[str, tuple[Callable[[], Any], str]] = {
        "Hugging Face, eager": (lambda: hugging_face_bert(options, False), "dense"),
        "reference pruning, eager": (lambda: hugging_face_bert(options, True), "scored"),
    }
    for fast in ("off", "exact", "auto"):
        rows[f"plain, {fast}"] = (lambda fast=fast: Ours(options, "none", None, fast), "dense")
        rows[f"mix, {fast}"] = (lambda fast=fast: Ours(options, "across", None, fast), "dense")
        for name, method in METHODS.items():
            if fast == "auto" or name == "movement":
                rows[f"mix + {name}, {fast}"] = (
                    lambda fast=fast, method=method: Ours(options, "across", method, fast),
                    "pruned" if name == "magnitude" else "scored",
                )
    for part in [field.name for field in fields(Fused)] if options.each else []:
        bare = argparse.Namespace(**vars(options) | {"without": [*options.without, part]})
        rows[f"plain, auto, no {part}"] = (lambda bare=bare: Ours(bare, "none", None, "auto"), "dense")
        rows[f"mix + movement, auto, no {part}"] = (
            lambda bare=bare: Ours(bare, "across", METHODS["movement"], "auto"),
            "scored",
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lengths", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument(
        "--only", nargs="+", help="rows whose names hold one of these words; with --families: plain"
    )
    parser.add_argument(
        "--scores", choices=["spread", "equal"], default="spread", help="where the masks' scores start"
    )
    parser.add_argument("--parity", type=int, default=200, help="steps of the parity check; 0 = none")
    parser.add_argument(
        "--without",
        nargs="+",
        default=[],
        choices=[field.name for field in fields(Fused)],
        help="parts of the model's pass that are not fused",
    )
    parser.add_argument(
        "--each", action="store_true", help="also rows without each of the fused parts in turn"
    )
    parser.add_argument(
        "--families", nargs="*", choices=list(SHAPED), help="these families, or all, beside Hugging Face"
    )
    parser.add_argument("--compile", action="store_true", help="with --families: torch.compile too")
    parser.add_argument("--long", action="store_true", help="long texts beside Hugging Face")
    parser.add_argument("--kernels", action="store_true", help="the kernels of a step by kind and name")
    parser.add_argument(
        "--tiny", action="store_true", help="with --families, --long or --kernels: small models on the CPU"
    )
    parser.add_argument(
        "--seconds", type=float, default=225, help="with --families: begin no row after these"
    )
    parser.add_argument(
        "--beside", type=Path, help="with --families: rows of this file are kept where no new one is"
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    is_tiny = options.tiny and (options.long or options.kernels or options.families is not None)
    if not (is_tiny or torch.cuda.is_available()):
        parser.error("this measures kernels of a GPU, and torch sees none on this machine.")
    report: dict[str, Any] = {
        "device": "cpu" if is_tiny else torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "width": options.width,
        "batch": options.batch,
        "precision": "bf16",
        "steps": options.steps,
        "without": options.without,
        "scores": options.scores,
        "rows": [],
    }
    if options.long:
        report["rows"] = run_long(options)
    elif options.kernels:
        report["rows"] = run_kernels(options)
    elif options.families is not None:
        report["rows"] = beside(run_families(options), options.beside)
    else:
        measure_bert(options, report)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(report, indent=1) + "\n")


def measure_bert(options: argparse.Namespace, report: dict[str, Any]) -> None:
    """Measure and print BERT's rows, the choice of masks and the parity of fast and plain steps."""
    rows = make_rows(options)
    print(
        f"{'':34}{'length':>7}{'ms':>9}{'wall ms':>9}{'TFLOP/s':>9}"
        f"{'TB/s':>7}{'x floor':>9}{'ready s':>9}{'MiB':>8}"
    )
    for length in options.lengths:
        for name, (make, kind) in rows.items():
            if options.only and not any(word in name for word in options.only):
                continue
            try:
                measured = measure(make, options, length)
            except (RuntimeError, torch.OutOfMemoryError) as error:
                print(f"{name:34}{length:7}  failed: {str(error)[:400]}", flush=True)
                continue
            least = floor(options, length, kind)
            rate = least["tflop"] / measured["median_ms"] * 1000
            row = {"name": name, "length": length} | measured | least | {"tflop_s": round(rate, 1)}
            if kind == "scored":
                row["scores"] = options.scores
            report["rows"].append(row)
            print(
                f"{name:34}{length:7}{measured['median_ms']:9.2f}{measured['wall_ms']:9.2f}{rate:9.0f}"
                f"{least['gigabytes'] / measured['median_ms']:7.2f}"
                f"{measured['median_ms'] / least['floor_ms']:9.2f}"
                f"{measured['ready_s']:9.1f}{measured['peak_mib']:8.0f}",
                flush=True,
            )
    report["thresholds"] = thresholds(options)
    print("choosing all masks:", report["thresholds"], flush=True)
    if options.parity:
        report["parity"] = {}
        for precision, way in (("fp32", "auto"), ("bf16", "exact"), ("bf16", "auto")):
            measured = parity(options, precision, options.parity, way)
            report["parity"][f"{precision} {way}"] = measured
            print(f"parity {precision} {way}:", measured, flush=True)
        for method in ("soft movement", "l0"):
            measured = parity(options, "fp32", options.parity, "auto", method)
            report["parity"][f"fp32 auto {method}"] = measured
            print(f"parity fp32 auto {method}:", measured, flush=True)


if __name__ == "__main__":
    main()
