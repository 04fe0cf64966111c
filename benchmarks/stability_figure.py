"""Draw how plain and mixed encoders live or die under pruning, from results/stability-gpu.json.

    python benchmarks/stability_figure.py [--data results/stability-gpu.json] [--out results/stability.svg]

Top: the training loss of each, the share of weights kept, and the loss of guessing. Below, for each: the
gradient norm of layers 1, 4, 8 and 12.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bermo.figures.data import Lines
from bermo.figures.draw import write_panels

RESULTS = Path(__file__).parent.parent / "results"
NOTE = "Gradients of each training have a scale of their own."
TITLE = "gte-small on SST-2, 10 % of the encoder's weights kept, seed 9"
RUNS = {
    "zeros-plain-9": "movement, plain",
    "zeros-mix-9": "movement, mix",
    "magnitude-plain-9": "magnitude, plain",
}
LAYERS = (1, 4, 8, 12)
# Ln 2: the loss of who knows nothing about two classes.
GUESSING = 0.693
# A gradient of zero has no logarithm.
SMALLEST = 1e-11


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=RESULTS / "stability-gpu.json")
    parser.add_argument("--out", type=Path, default=RESULTS / "stability.svg")
    options = parser.parse_args()
    curves = json.loads(options.data.read_text(encoding="utf-8"))["curves"]
    panels = [_losses(curves), *(_gradients(title, curves[name]) for name, title in RUNS.items())]
    write_panels(options.out, TITLE, [[panel] for panel in panels], NOTE)


def _losses(curves: Mapping[str, list[dict[str, Any]]]) -> Lines:
    rows = curves[next(iter(RUNS))]
    return Lines(
        title="movement kills the plain encoder; the mix, or magnitude, keeps it alive",
        x_label="step",
        y_label="training loss; share of weights kept",
        x=tuple(row["step"] for row in rows),
        series={
            **{title: tuple(row["loss"] for row in curves[name]) for name, title in RUNS.items()},
            "share kept": tuple(row["density"] for row in rows),
            "loss of guessing": (GUESSING,) * len(rows),
        },
    )


def _gradients(title: str, rows: list[dict[str, Any]]) -> Lines:
    return Lines(
        title=title,
        x_label="step",
        y_label="gradient norm of a layer",
        x=tuple(row["step"] for row in rows),
        series={
            f"layer {layer}": tuple(max(row["gradient"][layer - 1], SMALLEST) for row in rows)
            for layer in LAYERS
        },
        is_log=True,
    )


if __name__ == "__main__":
    main()
