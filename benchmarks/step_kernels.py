"""Where the microseconds of a step go: its kernels by kind and by name (`benchmarks/step.py --kernels`).

Each way takes some steps under torch's profiler. Kernels of one kind are summed.
"""

import argparse
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from step_shapes import BASE, SHAPED
from step_ways import METHODS, MIDDLE, Ours, hugging_face_bert, make_batch
from torch.profiler import ProfilerActivity, profile

KINDS: Mapping[str, tuple[str, ...]] = {
    "attention": (
        "flash",
        "fmha",
        "attend_",
        "tiles_",
        "_bits",
        "relative_",
        "shear_",
        "attention",
        "softmax",
    ),
    "matrix products": ("nvjet", "gemm", "gemv", "splitk", "cublas", "::mm", "addmm", "bmm"),
    "residual, dropout, LayerNorm": ("residual_", "prenorm_", "_sum_parts", "layer_norm", "dropout"),
    "gelu, joined inputs": ("gelu", "gated_", "rotary_", "join"),
    "mix": ("mix_forward", "mix_backward"),
    "masks": (
        "bracket",
        "collect",
        "route",
        "digit",
        "write_masks",
        "count_",
        "_copy_masked",
        "_write_grads",
    ),
    "AdamW, norm of the gradients": ("adam", "sum_squares", "root_sums", "norm"),
    "word vectors": ("embed", "index", "gather", "_rows"),
}
"""Parts of kernels' names by kind; the first that fits counts."""
OTHERS = "copies, sums and the rest"
LONGEST = 25
"""Kernels of a step that are listed by name."""


class Kernel(NamedTuple):
    """All launches of a kernel in one step."""

    name: str
    launches: float
    microseconds: float


def kind_of(name: str) -> str:
    """Return which part of a step a kernel belongs to."""
    lower = name.lower()
    return next((kind for kind, parts in KINDS.items() if any(part in lower for part in parts)), OTHERS)


def by_kind(kernels: Iterable[Kernel]) -> dict[str, dict[str, float]]:
    """Return launches and microseconds of each kind, the longest first."""
    found: dict[str, dict[str, float]] = {}
    for kernel in kernels:
        sums = found.setdefault(kind_of(kernel.name), {"launches": 0.0, "us": 0.0})
        sums["launches"] += kernel.launches
        sums["us"] += kernel.microseconds
    rounded = {kind: {name: round(x, 1) for name, x in sums.items()} for kind, sums in found.items()}
    return dict(sorted(rounded.items(), key=lambda item: -item[1]["us"]))


def listed(make: Callable[[], Any], options: argparse.Namespace, length: int) -> tuple[float, list[Kernel]]:
    """Run some steps of one way, then as many under the profiler; return the milliseconds of one and its
    kernels, the longest first.
    """
    step, batches = make(), [make_batch(options.batch, length, seed) for seed in range(2)]
    is_gpu = torch.cuda.is_available()
    if is_gpu:
        batches = [{k: v.pin_memory() for k, v in batch.items()} for batch in batches]
    for number in range(4):
        step(MIDDLE + number, batches[number % 2])
    wait = torch.cuda.synchronize if is_gpu else lambda: None
    wait()
    started = time.perf_counter()
    for number in range(options.steps):
        step(MIDDLE + number, batches[number % 2])
    wait()
    step_ms = 1000 * (time.perf_counter() - started) / options.steps
    with profile(activities=[ProfilerActivity.CUDA if is_gpu else ProfilerActivity.CPU]) as seen:
        for number in range(options.steps):
            step(MIDDLE + number, batches[number % 2])
        wait()
    kernels = [
        Kernel(
            event.key,
            event.count / options.steps,
            (event.self_device_time_total if is_gpu else event.self_cpu_time_total) / options.steps,
        )
        for event in seen.key_averages()
    ]
    return step_ms, sorted(
        (one for one in kernels if one.microseconds > 0), key=lambda one: -one.microseconds
    )


def plain(options: argparse.Namespace, family: str) -> Ours:
    """Our plain step of a family at base shape."""
    return Ours(options, "none", None, "auto", encoder=SHAPED[family](BASE))


def run_kernels(options: argparse.Namespace) -> list[dict[str, Any]]:
    """List the kernels of the eager step and of ours, without and with mix and movement, or of our plain step
    of other families, and print them.
    """
    ways: dict[str, Callable[[], Any]] = {
        "Hugging Face, eager": lambda: hugging_face_bert(options, False),
        "plain, auto": lambda: Ours(options, "none", None, "auto"),
        "mix + movement, auto": lambda: Ours(options, "across", METHODS["movement"], "auto"),
    }
    if options.families:
        ways = {f"{family}, auto": partial(plain, options, family) for family in options.families}
    if options.tiny:
        ways = {"plain, off": lambda: Ours(options, "none", None, "off")}
    rows = []
    for length in options.lengths:
        for name, make in ways.items():
            step_ms, kernels = listed(make, options, length)
            kinds = by_kind(kernels)
            total = round(sum(one.microseconds for one in kernels), 1)
            launches = sum(one.launches for one in kernels)
            print(f"{name}, length {length}: {total:,.0f} µs in {launches:,.0f} launches")
            for kind, sums in kinds.items():
                print(f"  {kind:32}{sums['us']:9,.0f} µs{sums['launches']:7,.0f} launches", flush=True)
            longest = [
                one._asdict() | {"microseconds": round(one.microseconds, 1)} for one in kernels[:LONGEST]
            ]
            row = {"name": name, "length": length, "step_ms": round(step_ms, 3), "us": total}
            rows.append(row | {"kinds": kinds, "kernels": longest})
    return rows
