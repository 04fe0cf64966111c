"""Which pruning is best? Encoders × tasks × methods at 10 %; all but the method is bermo's default.

    python benchmarks/grid.py MODELS DATA OUT [--only REGEX] [--workers 5] [--seeds 9,25,39]
    python benchmarks/grid.py --gather results/grid.json OUT

MODELS holds a folder for each encoder, DATA the unpacked datasets sst2, mrpc, cola, mr. Seeds of an arm are
trained together, arms side by side on one GPU. The same command goes on where it stopped: OUT holds a folder
for each run, ENCODER-TASK-METHOD. Then: python scripts/make_grid.py
"""

import argparse
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TASKS = {
    "sst2": "--task sst2 --data {data}/sst2 --epochs 3",
    "sst2k": "--task sst2 --data {data}/sst2 --limit 20000 --epochs 3",
    "mrpc": "--task mrpc --data {data}/mrpc --epochs 10",
    "cola": "--task cola --data {data}/cola --epochs 5",
    "mr": "--train {data}/mr/train.tsv --valid {data}/mr/dev.tsv --epochs 5",
}
MOVEMENT = "--prune movement --density 0.1"
METHODS = {
    "sensitivity": MOVEMENT,
    "sensitivity-plain": f"{MOVEMENT} --mix none",
    "no-scores": f"{MOVEMENT} --score-lr 0",
    "size": f"{MOVEMENT} --rank size",
    "size-plain": f"{MOVEMENT} --rank size --mix none",
    "size-global": f"{MOVEMENT} --rank size --scope global",
    "score": f"{MOVEMENT} --rank score",
    "soft": "--prune soft-movement --density 0.1",
    "magnitude": "--prune magnitude --density 0.1",
    "dense": "",
}
SHOWN = {"sst2k": "SST-2, 20,000 rows", "gte": "gte-small", "minilm": "MiniLM-L6", "mpnet": "mpnet-base"}
"""What the table calls a task or a folder of an encoder, where it is not its own name."""
COMMON = "--precision bf16 --keep none --checkpoint-minutes 100 --evaluations 1"


def run(name: str, options: argparse.Namespace) -> str:
    """Train one arm; its words go to a log beside its folder."""
    encoder, task, method = name.split("-", 2)
    seeds = f"--seeds {options.seeds} --together {len(options.seeds.split(','))}"
    words = f"train --model {options.models / encoder} {TASKS[task]} {METHODS[method]} {seeds} {COMMON}"
    command = [sys.executable, "-m", "bermo", *words.format(data=options.data).split(), "--out"]
    with (options.out / f"{name}.log").open("w") as log:
        done = subprocess.run([*command, str(options.out / name)], stdout=log, stderr=log, check=False)
    return f"{name}: {done.returncode}"


def rows(out: Path) -> list[dict[str, object]]:
    """Return one row for each seed of each finished run."""
    found: list[dict[str, object]] = []
    for path in sorted(out.glob("*/result.json")):
        encoder, task, method = path.parent.name.split("-", 2)
        for seed in json.loads(path.read_text(encoding="utf-8"))["seeds"]:
            found.append(
                {
                    "encoder": SHOWN.get(encoder, encoder),
                    "task": SHOWN.get(task, task),
                    "method": method.removesuffix("-plain"),
                    "mix": not method.endswith("-plain"),
                    "seed": seed["seed"],
                    "score": round(seed["score"], 3),
                    "last": round(seed["last_score"], 3),
                    "dead": bool(seed["diverged"]),
                    "density": round(seed["density"], 4),
                    "dense": method == "dense",
                }
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--only", default=".")
    parser.add_argument("--workers", type=int, default=5)
    parser.add_argument("--seeds", default="9,25,39")
    parser.add_argument("--gather", type=Path)
    options = parser.parse_args()
    if options.gather:
        options.gather.write_text(json.dumps(rows(options.models), indent=1) + "\n", encoding="utf-8")
        return
    options.out.mkdir(parents=True, exist_ok=True)
    encoders = sorted(path.name for path in options.models.iterdir() if path.is_dir())
    names = [f"{e}-{t}-{m}" for m in METHODS for t in TASKS for e in encoders]
    wanted = [name for name in names if re.search(options.only, name)]
    with ThreadPoolExecutor(options.workers) as pool:
        for said in pool.map(lambda name: run(name, options), wanted):
            print(said, flush=True)


if __name__ == "__main__":
    main()
