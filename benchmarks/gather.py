"""Put the results of many run folders into one JSON file: scores, seconds and curves of every seed.

python benchmarks/gather.py OUT.json RUNS… [--beside EARLIER.json]        every folder under RUNS that holds a
spec.json is a run; its name is its path

--beside keeps an earlier file's runs where this one has none of that name, or an unfinished one beside a
finished one.
"""

import argparse
import json
from pathlib import Path
from typing import Any

SEED = (
    "seed",
    "metric",
    "score",
    "values",
    "last_score",
    "diverged",
    "best_step",
    "steps",
    "loss",
    "seconds",
    "together",
    "peak_memory_mib",
    "mix_weights",
    "encoder_density",
    "encoder_kept",
    "num_parameters",
    "padding_share",
    "device",
)


def curve(folder: Path) -> list[list[float | None]]:
    """(step, training loss, density, gradient norm, valid score) of a seed, from its metrics."""
    rows = []
    for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        valid = [value for key, value in row.items() if key.startswith("valid/")]
        names = ("loss", "density", "gradient_norm")
        rows.append([row["step"], *(row.get(name) for name in names), valid[0] if valid else None])
    return rows


def run(folder: Path) -> dict[str, Any]:
    """What one run gave, finished or not."""
    spec = json.loads((folder / "spec.json").read_text(encoding="utf-8"))
    seeds = []
    for path in sorted(folder.glob("seed-*")):
        made: dict[str, Any] = {"name": path.name}
        if (path / "result.json").exists():
            result = json.loads((path / "result.json").read_text(encoding="utf-8"))
            made |= {name: result[name] for name in SEED if name in result}
            made["diverged"] = result["diverged"] or result.get("undertrained")
        if (path / "metrics.jsonl").exists():
            made["curve"] = curve(path)
        seeds.append(made)
    result = folder / "result.json"
    known = json.loads(result.read_text(encoding="utf-8")) if result.exists() else {}
    over = {name: known.get(name) for name in ("mean", "deviation", "interval", "num_diverged")}
    return {"spec": spec.get("spec", spec), "over_seeds": over, "seeds": seeds}


def is_finished(run: dict[str, Any]) -> bool:
    """Tell whether all seeds of a run came to their end."""
    return bool(run["seeds"]) and all("score" in seed for seed in run["seeds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--beside", type=Path, help="an earlier file, whose other runs are kept")
    options = parser.parse_args()
    gathered = {
        str(spec.parent.relative_to(root)): run(spec.parent)
        for root in options.runs
        for spec in sorted(root.rglob("spec.json"))
    }
    earlier = json.loads(options.beside.read_text(encoding="utf-8")) if options.beside else {}
    for name, known in earlier.items():
        if name not in gathered or (is_finished(known) and not is_finished(gathered[name])):
            gathered[name] = known
    options.out.write_text(json.dumps(gathered, separators=(",", ":")), encoding="utf-8")
    print(f"{len(gathered)} runs, {options.out.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
