"""The step of every family beside Hugging Face's: what `benchmarks/step.py --families` measures and prints.

Weights are random, all families have one shape (step_shapes.py). Columns, in milliseconds:

    plain       our step: one CUDA graph, fused kernels where the family has their structure
    pruned      the same with the mix of all layers and movement pruning
    eager       Hugging Face's model, autocast to bfloat16, clipping, torch's AdamW
    fused       the same with the fused AdamW, which Trainer takes by default
    compiled    the same under torch.compile(mode="max-autotune"), with --compile: a minute a row or more

With --only plain the first column alone is measured. A row that fails is named with its error, and the others
go on.
"""

import argparse
import gc
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from step_shapes import BASE, SHAPED, TINY, Shape
from step_ways import METHODS, HuggingFace, Ours, make_batch
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, PretrainedConfig

from bermo.encoders.half_bias import set_half_biases_
from bermo.errors import BermoError
from bermo.models.tasks import BermoForSequenceClassification
from bermo.training.bottleneck import is_bottlenecked
from bermo.training.disentangled import is_disentangled
from bermo.training.fusible import (
    attention_projections,
    can_fuse_mix,
    is_biased_attention,
    is_gated,
    is_gelu,
    is_gelu_by_tanh,
    is_residual,
    is_rotary,
    pre_norm,
)
from bermo.training.graphs import GraphedStep
from bermo.training.shifted import is_feed_forward, is_shifted
from bermo.training.stack import stack

# A step in the middle of the pruning schedule.
MIDDLE = 5000
WARM_UP = 4
FASTER, AS_BERT = 4.0, 1.3
"""The targets: how many times faster than Hugging Face, and how many times BERT's time at most."""


@dataclass(frozen=True)
class Way:
    """One column: its times at each length, and what was told while it ran."""

    times: dict[int, float] = field(default_factory=dict)
    error: str = ""
    state: str = ""


def device_of(is_tiny: bool) -> torch.device:
    return torch.device("cpu" if is_tiny else "cuda")


def batches_of(
    family: str, options: argparse.Namespace, length: int, shape: Shape
) -> list[dict[str, Tensor]]:
    """Return four batches; XLNet reads padding on the left."""
    made = []
    for seed in range(4):
        batch = make_batch(options.batch, length, seed)
        batch["input_ids"] %= shape.words
        batch["input_ids"].clamp_(min=5)
        if family == "xlnet":
            batch["attention_mask"] = batch["attention_mask"].flip(1)
        made.append(batch if options.tiny else {k: v.pin_memory() for k, v in batch.items()})
    return made


def median_ms(step: Callable[[int, Any], None], batches: list[dict[str, Tensor]], count: int) -> float:
    """Median milliseconds of a step, each timed by itself; on a GPU between events in its stream."""
    is_cuda = batches[0]["input_ids"].is_pinned()
    for number in range(WARM_UP if is_cuda else 1):
        step(MIDDLE + number, batches[number % len(batches)])
    marks: list[Any] = [_mark(is_cuda)]
    for number in range(count):
        step(MIDDLE + number, batches[number % len(batches)])
        marks.append(_mark(is_cuda))
    if is_cuda:
        torch.cuda.synchronize()
        times = [a.elapsed_time(b) for a, b in itertools.pairwise(marks)]
    else:
        times = [1000 * (b - a) for a, b in itertools.pairwise(marks)]
    return round(statistics.median(times), 3)


def _mark(is_cuda: bool) -> Any:
    if not is_cuda:
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def guarded(measure: Callable[[], Way]) -> Way:
    """Measure a column; one that fails becomes a row with its error, whatever the error is."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    try:
        return measure()
    except Exception as error:
        return Way(error=f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}")


def ours(family: str, config: PretrainedConfig, options: argparse.Namespace, is_pruned: bool) -> Way:
    """Time our step, plain or with mix and movement pruning, and say how it was computed."""
    told: list[str] = []
    mix, method = ("across", METHODS["movement"]) if is_pruned else ("none", None)
    fast = "off" if options.tiny else "auto"
    step = Ours(options, mix, method, fast, encoder=config, tell=told.append)
    times = {
        n: median_ms(step, batches_of(family, options, n, shape_of(options)), options.steps)
        for n in options.lengths
    }
    return Way(times=times, state=_state(step, told))


def _state(step: Ours, told: list[str]) -> str:
    """Whether steps were captured and which parts were fused; if not, the sentence that says why."""
    if not isinstance(step.step, GraphedStep):
        return "plain steps on this device"
    parts = ["captured" if step.step.can_capture and step.step.graphs else "not captured"]
    fusion = step.plain.fusion
    parts.append("not fused: no kernel can run" if fusion is None else f"fused: {_fused(step)}")
    return "; ".join([*parts, *dict.fromkeys(told)])


def _fused(step: Ours) -> str:
    """Name the parts of the model that kernels compute, with how many modules they are."""
    modules = list(step.model.modules())
    counts = {
        "residual": sum(is_residual(module) or is_feed_forward(module) for module in modules),
        "pre-norm layers": sum(pre_norm(module) is not None for module in modules),
        "layers between bottlenecks": sum(is_bottlenecked(module) for module in modules),
        "gates": sum(is_gated(module) for module in modules),
        "rotated q, k": sum(is_rotary(module) for module in modules),
        "gelu": sum(is_gelu(module) or is_gelu_by_tanh(module) for module in modules),
        "q, k, v as one": sum(attention_projections(module) is not None for module in modules),
        "attention with a bias": sum(is_biased_attention(module) for module in modules),
        "attention by distances": sum(is_disentangled(module) or is_shifted(module) for module in modules),
        "mix": sum(can_fuse_mix(module) for module in modules),
        "embeddings": len(step.plain.fusion.tables),
        "adam": len(step.plain.direct),
    }
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count) or "nothing"


def theirs(family: str, config: PretrainedConfig, options: argparse.Namespace) -> Iterator[tuple[str, Way]]:
    """Time the columns of Hugging Face; they train one model in turn."""
    device = device_of(options.tiny)
    model: list[nn.Module] = []

    def made() -> nn.Module:
        if not model:
            torch.manual_seed(0)
            with device:
                model.append(AutoModelForSequenceClassification.from_config(config).to(device).train())
            # Without this, DeBERTa's own code fails under autocast, and there would be nothing to compare.
            set_half_biases_(model[0])
        return model[0]

    def run(compiles: bool, is_fused: bool) -> Way:
        module = made()
        network = torch.compile(module, mode="max-autotune", dynamic=False) if compiles else module
        step = HuggingFace(network, device, is_fused)
        shape = shape_of(options)
        return Way(
            {
                n: median_ms(step, batches_of(family, options, n, shape), options.steps)
                for n in options.lengths
            }
        )

    yield "eager", guarded(lambda: run(False, False))
    yield "fused", guarded(lambda: run(False, True))
    if options.compile:
        yield "compiled", guarded(lambda: run(True, True))


def shape_of(options: argparse.Namespace) -> Shape:
    return TINY if options.tiny else BASE


def stacked(family: str) -> str:
    """Say whether seeds of this family train together; if not, the sentence that refuses it."""
    config = SHAPED[family](replace(TINY, layers=1))
    models = [BermoForSequenceClassification.from_backbone(config, num_labels=2) for _ in range(2)]
    try:
        stack(models)
    except BermoError as error:
        return f"not stacked: {error}"
    return "stacked"


def measure_family(family: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure all columns of a family, and say how its steps were computed."""
    config = SHAPED[family](shape_of(options))
    ways = {"plain": guarded(lambda: ours(family, config, options, False))}
    if not options.only:
        ways["pruned"] = guarded(lambda: ours(family, config, options, True))
        ways |= dict(theirs(family, config, options))
    together = guarded(lambda: Way(state=stacked(family)))
    errors = {name: way.error for name, way in ways.items() if way.error}
    return {
        "family": family,
        "ms": {name: way.times for name, way in ways.items()},
        "state": {name: ways[name].state for name in ("plain", "pruned") if name in ways},
        "stacked": together.state or together.error,
        "errors": errors,
    }


def print_family(row: dict[str, Any], bert: dict[int, float], options: argparse.Namespace) -> None:
    """Print a line for each length, then how it was computed and what failed."""
    ms = row["ms"]
    for length in options.lengths:
        times = {name: way.get(length) for name, way in ms.items()}
        cells = "".join(f"{time:10.2f}" if time else f"{'failed':>10}" for time in times.values())
        ratios = _times(times.get("eager"), times["plain"]) + _times(times["plain"], bert.get(length))
        print(f"{row['family']:14}{length:7}{cells}{ratios}")
    states = [row["state"]["plain"]]
    if row["state"].get("pruned", states[0]) != states[0]:
        states.append(f"pruned: {row['state']['pruned']}")
    for sentence in [*states, row["stacked"], *(f"{name} failed: {e}" for name, e in row["errors"].items())]:
        if sentence:
            print(f"{'':14}{sentence}")
    print(end="", flush=True)


def _times(slow: float | None, fast: float | None) -> str:
    return f"{slow / fast:11.2f}" if slow and fast else f"{'–':>11}"


def run_families(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure and print every chosen family, as long as there is time; return the rows."""
    started = time.monotonic()
    columns = ["plain", "pruned", "eager", "fused", *(["compiled"] if options.compile else [])]
    columns = columns[:1] if options.only else columns
    heads = [*columns, "eager/ours", "ours/BERT"]
    print(
        f"{'':14}{'length':>7}" + "".join(f"{head:>11}" if "/" in head else f"{head:>10}" for head in heads)
    )
    rows: list[dict[str, Any]] = []
    bert: dict[int, float] = {}
    for family in options.families or list(SHAPED):
        if time.monotonic() - started > options.seconds:
            print(f"{family:14}not measured: {options.seconds} seconds are over")
            continue
        row = measure_family(family, options)
        if family == "bert":
            bert = row["ms"]["plain"]
        rows.append(row | {"bert": bert})
        print_family(row, bert, options)
    print(f"Wanted: eager/ours at least {FASTER}, ours/BERT at most {AS_BERT}.")
    return rows


def beside(rows: Sequence[dict[str, Any]], other: Path | None) -> list[dict[str, Any]]:
    """Return the rows and those of another run's file, each with BERT's time of its own run, by family."""
    earlier = [] if other is None else json.loads(other.read_text(encoding="utf-8"))["rows"]
    by_family = {row["family"]: row for row in [*earlier, *rows]}
    return [by_family[family] for family in SHAPED if family in by_family]
