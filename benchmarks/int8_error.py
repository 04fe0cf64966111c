"""How far logits move by three ways to choose the scales of int8 weights, on the box's own weights.

    python benchmarks/int8_error.py [--out results/int8-error.json]

Overflow-safe 8 bits are what an export with signed weights has (bermo/ship/runtimes/overflow.py). Plain 8
bits reach ±127 in every column and overflow on x86 without VNNI; 7 bits reach ±64 and never do. Five random
heads of 64 outputs, so that the error is a mean over many directions; the texts are those that exports are
compared on. Run it with VNNI or on ARM: on another x86 plain 8 bits would overflow too.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from bermo.encoders.backbone import load_tokenizer
from bermo.files import write_json
from bermo.machine import processor
from bermo.methods.measure import versions
from bermo.models.tasks import BermoForSequenceClassification
from bermo.runs.trained import TrainedFolder, open_trained
from bermo.ship.export.compare import BATCH, relative_error
from bermo.ship.export.onnx import quiet, write_onnx
from bermo.ship.export.quantize import quantize_dynamic, use_scales
from bermo.ship.export.rewrite import quicken
from bermo.ship.export.write import inputs_of
from bermo.ship.runtimes.candidate import OnnxCandidate, answer
from bermo.ship.runtimes.overflow import safe_scales
from bermo.ship.runtimes.texts import built_in
from bermo.ship.runtimes.torch_candidate import TorchCandidate

OUTPUTS = 64
SEEDS = range(5)
Weights = npt.NDArray[np.float32]


def reaching(largest: int) -> Callable[[Weights], Weights]:
    """Return scales with which the largest weight of each column gets the code `largest`."""
    return lambda weights: np.maximum(np.abs(weights).max(axis=0) / largest, 1e-12).astype(np.float32)


WAYS: Mapping[str, Callable[[Weights], Weights]] = {
    "8 bits, overflow-safe": safe_scales,
    "8 bits": reaching(127),
    "7 bits": reaching(64),
}


def save_box(folder: Path, seed: int) -> TrainedFolder:
    """Write the encoder in the box with a random head."""
    torch.manual_seed(seed)
    BermoForSequenceClassification.from_backbone("box", num_labels=OUTPUTS).save_pretrained(folder)
    load_tokenizer("box").save_pretrained(folder)
    return open_trained(folder)


def errors(folder: Path, seed: int) -> dict[str, float]:
    """Quantise the box in every way, and return the relative error of its logits."""
    opened = save_box(folder, seed)
    model, features = opened.load_model().requires_grad_(False), built_in(opened)
    before = answer(TorchCandidate(model), features, BATCH)
    graph = folder / "graph.onnx"
    example = inputs_of(features, np.arange(3))
    write_onnx(model, {name: torch.from_numpy(value) for name, value in example.items()}, graph)
    quicken(graph)
    found: dict[str, float] = {}
    for name, scales in WAYS.items():
        out = folder / "int8.onnx"
        with quiet():
            quantize_dynamic(graph, out, "signed")
        use_scales(graph, out, scales)
        found[name] = relative_error(answer(OnnxCandidate(out, None), features, BATCH), before)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results/int8-error.json"))
    out = parser.parse_args().out
    own = processor()
    if own.is_x86 and not own.has_vnni:
        raise SystemExit(f"{own.name} has no VNNI: plain 8 bits would overflow here.")
    found: list[dict[str, float]] = []
    for seed in SEEDS:
        with tempfile.TemporaryDirectory() as folder:
            found.append(errors(Path(folder), seed))
    ways = {name: [row[name] for row in found] for name in WAYS}
    known = {
        "command": "python benchmarks/int8_error.py",
        "processor": own.name,
        "instructions": sorted(own.instructions),
        "versions": {**versions(), "onnxruntime": version("onnxruntime")},
        "outputs": OUTPUTS,
        "relative_errors": ways,
    }
    write_json(out, known)
    for name, values in ways.items():
        print(f"{name:>22}: {statistics.mean(values):.2%} ({min(values):.2%} … {max(values):.2%})")


if __name__ == "__main__":
    main()
