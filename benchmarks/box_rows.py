"""Gather what box_gpu.sh or adapt_gpu.sh fine-tuned: a row for each seed, and a table of the means.

    python benchmarks/box_rows.py WORK OUT.json

WORK holds a folder for each run, STAGE-TASK.
"""

import json
import sys
from pathlib import Path
from statistics import mean
from typing import Any

ORDER = ("sst2", "cola", "rte", "mrpc", "stsb")


def rows(work: Path) -> list[dict[str, Any]]:
    """Return one row for each seed of each finished run."""
    found = []
    for path in sorted(work.glob("*-*/result.json")):
        stage, task = path.parent.name.rsplit("-", 1)
        # A pretraining has no seeds.
        for seed in json.loads(path.read_text(encoding="utf-8")).get("seeds", ()):
            names = {"score": "score", "last": "last_score", "frozen": "frozen_score"}
            # A head that did not start as a probe has no frozen score.
            known = {name: seed[key] for name, key in names.items() if seed.get(key) is not None}
            scores = {name: round(score, 3) for name, score in known.items()}
            found.append({"encoder": stage, "task": task, "seed": seed["seed"]} | scores)
    return found


def table(found: list[dict[str, Any]]) -> str:
    """Write the mean over seeds of each encoder on each task, best evaluation and last."""
    known = {row["task"] for row in found}
    tasks = [*(task for task in ORDER if task in known), *sorted(known - set(ORDER))]
    lines = ["encoder  " + "".join(f"{task:>16}" for task in tasks)]
    for encoder in sorted({row["encoder"] for row in found}):
        cells = []
        for task in tasks:
            own = [row for row in found if (row["encoder"], row["task"]) == (encoder, task)]
            text = f"{mean(r['score'] for r in own):.2f} {mean(r['last'] for r in own):.2f}" if own else "–"
            cells.append(f"{text:>16}")
        lines.append(f"{encoder:<9}" + "".join(cells))
    return "\n".join(lines)


def main() -> None:
    work, target = map(Path, sys.argv[1:])
    found = rows(work)
    target.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(table(found))


if __name__ == "__main__":
    main()
