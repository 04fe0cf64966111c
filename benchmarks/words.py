"""Gather the probes of words and trees of several encoders, and what they cost, into results/words-cpu.json.

    OMP_NUM_THREADS=2 /usr/bin/time -v -o times.txt bermo probe --model gte-small,box \\
        --words ud_ewt,conll2003 --tasks upos,deprel,entity,tree --out words
    python benchmarks/words.py words times.txt --out results/words-cpu.json

The sentences of UD EWT and CoNLL-2003 are not kept: of trees there are the scores, no examples.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

from bermo.files import read_sealed
from bermo.machine import processor

COMMAND = "bermo probe --model gte-small,box --words ud_ewt,conll2003 --tasks upos,deprel,entity,tree"
TASKS = ("upos", "deprel", "entity", "tree")
LEFT_OUT = {"examples", "digest", "notes", "seconds"}
DIGITS = 3


def gather(folder: Path, times: str) -> dict[str, Any]:
    """Return what the folder of the command holds, model by model, and its times."""
    user, system = (_number(rf"{kind} time \(seconds\): ([\d.]+)", times) for kind in ("User", "System"))
    first = sorted(folder.glob("*/upos.json"), key=lambda path: path.stat().st_mtime)
    models = [path.parent for path in first]
    return {
        "command": COMMAND,
        "machine": f"{processor().name}, two threads, beside other work",
        "cpu_seconds": round(user + system, 1),
        "wall_seconds": round(_wall(times), 1),
        "models": {model.name: {task: _task(model / f"{task}.json") for task in TASKS} for model in models},
    }


def _task(path: Path) -> Any:
    return {name: _rounded(value) for name, value in read_sealed(path).items() if name not in LEFT_OUT}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, list):
        return list(map(_rounded, value))
    return {name: _rounded(item) for name, item in value.items()} if isinstance(value, dict) else value


def _number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    if found is None:
        raise SystemExit(f"times.txt has no line like {pattern!r}: write it with /usr/bin/time -v.")
    return float(found[1])


def _wall(times: str) -> float:
    """Return the seconds of h:mm:ss or m:ss."""
    found = re.search(r"Elapsed \(wall clock\) time.*: ([\d:.]+)\n", times)
    if found is None:
        raise SystemExit("times.txt has no wall clock time: write it with /usr/bin/time -v.")
    seconds = 0.0
    for part in found[1].split(":"):
        seconds = 60 * seconds + float(part)
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("times", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    found = gather(given.folder, given.times.read_text(encoding="utf-8"))
    given.out.write_text(json.dumps(found) + "\n", encoding="utf-8")
    print(f"{found['cpu_seconds']:,.0f} CPU seconds, {found['wall_seconds']:,.0f} seconds, into {given.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
