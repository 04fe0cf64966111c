"""Put losses, shares kept and gradients by layer of the grid's trainings into one file.

    python benchmarks/curves.py OUT TO [--only REGEX]

OUT holds a folder for each run of benchmarks/grid.py (ENCODER-TASK-METHOD.SEEDS). TO gets a curve for each
seed, ENCODER-TASK-METHOD-SEED: {"step", "loss", "density", "gradient": the norm of each layer's, first to
last}. Of a training that was stopped it has what was written until then. Then: python
benchmarks/stability_figure.py

results/start-curves.json: benchmarks/grid.py MODELS DATA OUT --only 'mpnet-sst2-(size|dense)-random' and this
with the same --only.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

DIGITS = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("to", type=Path)
    parser.add_argument("--only", default=".", help="runs whose name fits")
    options = parser.parse_args()
    found = curves(options.out, options.only)
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(rows)}" for name, rows in found.items())
    options.to.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def curves(out: Path, only: str = ".") -> dict[str, list[dict[str, Any]]]:
    """Return the curve of each seed of the runs whose name fits."""
    return {
        f"{path.parts[-3].partition('.')[0]}-{path.parent.name.removeprefix('seed-')}": curve(path)
        for path in sorted(out.glob("*/seed-*/metrics.jsonl"))
        if re.search(only, path.parts[-3])
    }


def curve(path: Path) -> list[dict[str, Any]]:
    """Return what a training wrote of each stretch of steps; dense ones keep all their weights."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [
        {
            "step": row["step"],
            "loss": round(row["loss"], DIGITS),
            "density": round(row.get("density", 1.0), DIGITS),
            "gradient": [float(f"{norm:.3g}") for norm in layers(row)],
        }
        for row in rows
        if "loss" in row
    ]


def layers(row: dict[str, Any]) -> list[float]:
    """Return the gradient norms of a row, layer by layer."""
    named = {
        int(name.rpartition(".")[2]): norm for name, norm in row.items() if name.startswith("gradient/layer.")
    }
    return [named[number] for number in sorted(named)]


if __name__ == "__main__":
    main()
