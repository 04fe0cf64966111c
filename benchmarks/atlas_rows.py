"""The scores of an atlas's trainings as rows, and those of mixes that come or go.

    python benchmarks/atlas_rows.py OUT results/atlas-gpu.json               OUT of atlas.sh
    python benchmarks/atlas_rows.py --gradual OUT results/gradual-mix.json   OUT of gradual_mix_gpu.sh

A row is a method: its seeds, and the score of the best evaluation of its last training. Of the mixes the last
evaluation is taken. The other fields of a file that exists stay as they are.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from bermo.atlas.methods import METHODS
from bermo.atlas.steps import Train

ARMS = ("plain", "fixed", "opens", "closes")


def rows(out: Path) -> list[dict[str, Any]]:
    """Return a row for each method of which a seed has ended its last training, in the atlas's order."""
    found = []
    for method in METHODS.values():
        trains = [number for number, step in enumerate(method.steps, 1) if isinstance(step, Train)]
        if not trains:
            continue
        paths = sorted(out.glob(f"{method.name}/seed-*/{trains[-1]}-train/result.json"))
        ended = [json.loads(path.read_text(encoding="utf-8"))["seeds"][0] for path in paths]
        row = {"method": method.name, "group": method.group, "summary": method.summary}
        row |= {"seeds": [one["seed"] for one in ended], "scores": [round(one["score"], 2) for one in ended]}
        found += [row] if ended else []
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("json", type=Path)
    parser.add_argument("--gradual", action="store_true")
    options = parser.parse_args()
    known = json.loads(options.json.read_text(encoding="utf-8")) if options.json.exists() else {}
    known |= {"arms": arms(options.out)} if options.gradual else {"rows": rows(options.out)}
    options.json.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
