"""Training steps on long texts: what `benchmarks/step.py --long` measures and prints.

BERT at 512 tokens and ModernBERT up to its 8,192, each beside Hugging Face's eager step. A batch has fewer
texts the longer they are, so that all batches of a table have as many tokens: where memory is linear in the
length, the peak stays the same from row to row.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from step_families import Way, guarded, ours, shape_of, theirs
from step_shapes import SHAPED
from transformers import PretrainedConfig

TOKENS = 16384
LONG = {"bert": (128, 512), "modernbert": (512, 2048, 8192)}
"""The lengths of each family's texts."""
TINY = 8
"""How many times shorter everything is without a GPU."""


def run_long(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure and print every family and length; return the rows."""
    heads = ("ours", "eager", "eager/ours", "MiB", "eager MiB")
    print(f"{'':14}{'length':>7}{'rows':>6}" + "".join(f"{head:>11}" for head in heads))
    rows = []
    for family, lengths in LONG.items():
        for length in lengths:
            rows.append(_measure(family, length // TINY if options.tiny else length, options))
            _print(rows[-1])
    return rows


def _measure(family: str, length: int, options: argparse.Namespace) -> dict[str, Any]:
    num_rows = max(1, TOKENS // length) if not options.tiny else 1
    here = argparse.Namespace(**vars(options) | {"batch": num_rows, "lengths": [length], "compile": False})
    config = SHAPED[family](replace(shape_of(options), positions=max(514, length + 2)))
    mine, my_peak = _with_peak(lambda: ours(family, config, here, False))
    other, their_peak = _with_peak(lambda: _eager(family, config, here))
    return {
        "family": family,
        "length": length,
        "rows": num_rows,
        "ms": mine.times.get(length),
        "eager_ms": other.times.get(length),
        "peak_mib": my_peak,
        "eager_peak_mib": their_peak,
        "state": mine.state,
        "errors": [error for error in (mine.error, other.error) if error],
    }


def _eager(family: str, config: PretrainedConfig, options: argparse.Namespace) -> Way:
    return next(way for _, way in theirs(family, config, options))


def _with_peak(measure: Callable[[], Way]) -> tuple[Way, int]:
    """Measure, and return the most memory of the GPU that was in use at a time, in MiB."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    way = guarded(measure)
    return way, round(torch.cuda.max_memory_allocated() / 2**20) if torch.cuda.is_available() else 0


def _print(row: dict[str, Any]) -> None:
    times = [row["ms"], row["eager_ms"]]
    cells = "".join(f"{time:11.2f}" if time else f"{'failed':>11}" for time in times)
    ratio = f"{times[1] / times[0]:11.2f}" if all(times) else f"{'–':>11}"
    peaks = f"{row['peak_mib']:11}{row['eager_peak_mib']:11}"
    print(f"{row['family']:14}{row['length']:7}{row['rows']:6}{cells}{ratio}{peaks}")
    for sentence in (row["state"], *row["errors"]):
        if sentence:
            print(f"{'':14}{sentence}", flush=True)
