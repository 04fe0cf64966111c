"""Draw how plain and mixed encoders live or die under pruning: losses and gradients over a training.

    python benchmarks/stability_figure.py [--results results]

Writes stability.svg from stability-gpu.json (movement by score, gte-small) and stability-start.svg from
start-curves.json (by size, mpnet-base). Top: the training loss of each, the share of weights kept, and the
loss of guessing. Below, for each: the gradient norm of layers 1, 4, 8 and 12.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bermo.figures.data import Lines
from bermo.figures.draw import write_panels

RESULTS = Path(__file__).parent.parent / "results"
NOTE = "Gradients of each training have a scale of their own."
LAYERS = (1, 4, 8, 12)
# Ln 2: the loss of who knows nothing about two classes.
GUESSING = 0.693
# A gradient of zero has no logarithm.
SMALLEST = 1e-11

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Study:
    """Trainings that are drawn together; the first one's share of weights stands beside their losses."""

    name: str
    data: str
    title: str
    finding: str
    runs: Mapping[str, str]
    gradients_of: tuple[str, ...]


STUDIES = (
    Study(
        name="stability",
        data="stability-gpu.json",
        title="gte-small on SST-2, 10 % of the encoder's weights kept, seed 9",
        finding="movement by score kills the plain encoder; the mix, or magnitude, keeps it alive",
        runs={
            "zeros-plain-9": "movement, plain",
            "zeros-mix-9": "movement, mix",
            "magnitude-plain-9": "magnitude, plain",
        },
        gradients_of=("zeros-plain-9", "zeros-mix-9", "magnitude-plain-9"),
    ),
    Study(
        name="stability-start",
        data="start-curves.json",
        title="mpnet-base on SST-2 by size, random head, embeddings frozen, seed 25",
        finding="it dies late; a lower rate, more steps before the pruning, or the mix keep it alive",
        runs={
            "mpnet-sst2-size-random-plain-25": "plain",
            "mpnet-sst2-size-random-slow-plain-25": "plain, rate 1e-5",
            "mpnet-sst2-size-random-late-plain-25": "plain, pruned from 30 % on",
            "mpnet-sst2-size-random-25": "mix",
        },
        gradients_of=("mpnet-sst2-size-random-plain-25", "mpnet-sst2-size-random-25"),
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    results = parser.parse_args().results
    for study in STUDIES:
        content = json.loads((results / study.data).read_text(encoding="utf-8"))
        curves = content.get("curves", content)
        panels = [
            _losses(study, curves),
            *(_gradients(study.runs[name], curves[name]) for name in study.gradients_of),
        ]
        write_panels(results / f"{study.name}.svg", study.title, [[panel] for panel in panels], NOTE)


def _losses(study: Study, curves: Mapping[str, Rows]) -> Lines:
    rows = curves[next(iter(study.runs))]
    return Lines(
        title=study.finding,
        x_label="step",
        y_label="training loss; share of weights kept",
        x=tuple(row["step"] for row in rows),
        series={
            **{title: tuple(row["loss"] for row in curves[name]) for name, title in study.runs.items()},
            "share kept": tuple(row["density"] for row in rows),
            "loss of guessing": (GUESSING,) * len(rows),
        },
    )


def _gradients(title: str, rows: Rows) -> Lines:
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
