"""Every loss and score of every recipe's tiny form, to the bit: proves that a refactoring changed no number.

    python scripts/losses.py --out before.json            # before the change
    python scripts/losses.py --against before.json        # after it, on the same machine: names what differs

Losses differ between processors and versions of torch; compare two trees on one machine.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

NUMBERS = ("loss", "score", "last_score", "values", "mix_weights", "encoder_density", "encoder_kept")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the losses there")
    parser.add_argument("--against", type=Path, help="compare with the losses of another tree")
    parser.add_argument("recipes", nargs="*", help="these recipes alone")
    options = parser.parse_args()
    losses = {name: run(name) for name in options.recipes or recipe_names()}
    if options.out:
        options.out.write_text(json.dumps(losses, indent=1), encoding="utf-8")
    if not options.against:
        return 0
    before = json.loads(options.against.read_text(encoding="utf-8"))
    changed = [name for name in losses if losses[name] != before.get(name)]
    print(f"{len(losses) - len(changed)} of {len(losses)} recipes have the same losses to the bit")
    for name in changed:
        print(f"  differs: {name}")
    return bool(changed)


def recipe_names() -> list[str]:
    from bermo.recipes import RECIPES

    return list(RECIPES)


def run(recipe: str) -> dict[str, list[object]]:
    """Run the tiny form in a new folder and return the numbers of every arm and seed."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bermo", "run", recipe, "--tiny", "--out", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return {
            path.parent.relative_to(folder).as_posix(): numbers(path.parent)
            for path in sorted(Path(folder).rglob("metrics.jsonl"))
        }


def numbers(seed: Path) -> list[object]:
    """The losses that a seed logged and the numbers of its result, without times."""
    logged = [json.loads(line) for line in (seed / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    result = json.loads((seed / "result.json").read_text(encoding="utf-8"))
    return [
        *([row.get("step"), row.get("loss"), row.get("score")] for row in logged),
        {name: result.get(name) for name in NUMBERS},
    ]


if __name__ == "__main__":
    sys.exit(main())
