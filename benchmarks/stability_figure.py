"""Draw how plain and mixed encoders live or die under pruning, from results/stability-gpu.json.

    python benchmarks/stability_figure.py [--data results/stability-gpu.json] [--out results/stability.svg]

Top: the training loss, the share of weights kept, and the loss of guessing. Below: the gradient norm of
layers 1, 4, 8 and 12.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from bermo.figures.data import Lines
from bermo.figures.draw import write_panels

RESULTS = Path(__file__).parent.parent / "results"
TITLE = "gte-small on SST-2, 10 % of the encoder's weights kept, seed 9"
PANELS = {
    "zeros-plain-9": "movement, plain: dies at density 0.9",
    "zeros-mix-9": "movement, mix: survives on its lower layers",
    "magnitude-plain-9": "magnitude, plain: survives",
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
    losses = [_losses(title, curves[name]) for name, title in PANELS.items()]
    gradients = [_gradients(curves[name]) for name in PANELS]
    write_panels(options.out, TITLE, [losses, gradients])


def _losses(title: str, rows: list[dict[str, Any]]) -> Lines:
    return Lines(
        title=title,
        x_label="step",
        y_label="loss; share of weights kept",
        x=tuple(row["step"] for row in rows),
        series={
            "guessing": (GUESSING,) * len(rows),
            "density": tuple(row["density"] for row in rows),
            "training loss": tuple(row["loss"] for row in rows),
        },
    )


def _gradients(rows: list[dict[str, Any]]) -> Lines:
    return Lines(
        title="",
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
