"""The scores of an atlas's trainings as rows, its speeds, and the scores of mixes that come or go.

    python benchmarks/atlas_rows.py OUT results/atlas-gpu.json               OUT of atlas.sh
    python benchmarks/atlas_rows.py --speed OUT results/atlas-x86.json       OUT of atlas.sh … measure
    python benchmarks/atlas_rows.py --gradual OUT results/gradual-mix.json   OUT of gradual_mix_gpu.sh

A row is a method: its seeds, the score of the best evaluation of its last training, and what was measured of
the model that is shipped (seed, score, agreement with the dense model, size). Seeds that OUT does not have
stay as the file has them; so do the file's other fields. Speeds are times the throughput and the latency of
the dense model, which each bench timed in turns. Of the mixes the last evaluation is taken.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from bermo.atlas.methods import METHODS
from bermo.atlas.speed import BENCH_FILE
from bermo.atlas.steps import Method, Train
from bermo.ship.bench.noise import noise_sentence
from bermo.ship.bench.run import read_bench

ARMS = ("plain", "fixed", "opens", "closes")


SHIPPED = ("score", "same_labels", "same_probabilities", "megabytes", "parameters", "nonzero")


def rows(out: Path, known: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each method that is known or of which a seed has ended, in the atlas's order."""
    before = {row["method"]: row for row in known}
    found = []
    for method in METHODS.values():
        old = before.get(method.name, {})
        trained = dict(zip(old.get("seeds", ()), old.get("scores", ()), strict=True)) | trainings(out, method)
        shipped = {row["seed"]: row for row in [*old.get("shipped", ()), *measured(out, method)]}
        row: dict[str, Any] = {"method": method.name, "group": method.group, "summary": method.summary}
        row |= {"seeds": sorted(trained), "scores": [trained[seed] for seed in sorted(trained)]}
        row |= {"shipped": [shipped[seed] for seed in sorted(shipped)]} if shipped else {}
        found += [row] if trained or shipped else []
    return found


def trainings(out: Path, method: Method) -> dict[int, float]:
    """Return the score of each seed's last training."""
    trains = [number for number, step in enumerate(method.steps, 1) if isinstance(step, Train)]
    paths = out.glob(f"{method.name}/seed-*/{trains[-1]}-train/result.json") if trains else ()
    ended = [json.loads(path.read_text(encoding="utf-8"))["seeds"][0] for path in paths]
    return {one["seed"]: round(one["score"], 2) for one in ended}


def measured(out: Path, method: Method) -> list[dict[str, Any]]:
    """Return what was measured of each seed's shipped model; shares in percent."""
    found = []
    for path in sorted(out.glob(f"{method.name}/seed-*/measured.json")):
        values = json.loads(path.read_text(encoding="utf-8"))
        shares = {name: round(100 * values[name], 1) for name in SHIPPED if name.startswith("same")}
        sizes = {name: round(values[name], 2) for name in SHIPPED if name not in shares}
        found.append({"seed": int(path.parent.name.removeprefix("seed-"))} | sizes | shares)
    return found


def arms(out: Path) -> dict[str, dict[str, float]]:
    """Return the last score of each seed of each mix."""
    found = {}
    for arm in ARMS:
        paths = sorted(out.rglob(f"{arm}/result.json"))
        seeds = [one for path in paths for one in json.loads(path.read_text(encoding="utf-8"))["seeds"]]
        seeds.sort(key=lambda one: one["seed"])
        found[arm] = {str(one["seed"]): round(one["last_score"], 2) for one in seeds}
    return found


def speeds(out: Path) -> dict[str, Any]:
    """Return where an atlas was timed, and how fast each method is; none that a noisy machine timed."""
    known = {name: out / name / BENCH_FILE for name in METHODS}
    timed = {name: read_bench(path) for name, path in known.items() if path.exists()}
    found: dict[str, Any] = {"rows": {}}
    for name, result in timed.items():
        if noise_sentence(result) is not None:
            continue
        row = result.rows[-1]
        least, most = result.spread(row, result.throughput_shape)
        found |= {"machine": result.machine, "threads": result.threads, "versions": result.versions}
        found["rows"][name] = {
            "throughput": round(result.speedup(row), 2),
            "least_most": [round(least, 2), round(most, 2)],
            "latency": round(result.latency_gain(row), 2),
            "ms": round(row.at(*result.latency_shape).p50, 2),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("json", type=Path)
    parser.add_argument("--gradual", action="store_true")
    parser.add_argument("--speed", action="store_true")
    options = parser.parse_args()
    known = json.loads(options.json.read_text(encoding="utf-8")) if options.json.exists() else {}
    if options.gradual:
        known["arms"] = arms(options.out)
    elif options.speed:
        known |= speeds(options.out)
    else:
        known["rows"] = rows(options.out, known.get("rows", []))
    options.json.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
