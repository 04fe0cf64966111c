"""Gather the arms of methods_gpu.sh: methods_rows.py OUT writes OUT/methods.json and prints it."""

import json
import sys
from pathlib import Path
from typing import Any


def rows(out: Path) -> list[dict[str, Any]]:
    """Return a row for each arm that ended: scores of the seeds, seconds, and scores of int8 exports."""
    return [_row(path.parent) for path in sorted(out.glob("*/result.json")) if path.parent.name != "cache"]


def _row(folder: Path) -> dict[str, Any]:
    seeds = [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("seed-*/result.json"))
    ]
    exports = [
        json.loads(path.read_text(encoding="utf-8"))["compared"]
        for path in sorted(folder.parent.glob(f"{folder.name}-int8-[0-9]*/export.json"))
    ]
    return {
        "arm": folder.name,
        "scores": [seed["score"] for seed in seeds],
        "last_scores": [seed["last_score"] for seed in seeds],
        "diverged": sum(seed["diverged"] is not None for seed in seeds),
        "seconds": [seed["seconds"] for seed in seeds],
        "parameters": seeds[0]["num_parameters"],
        "int8_scores": [compared["score_after"] for compared in exports],
        "int8_errors": [compared["relative_error"] for compared in exports],
    }


def main() -> None:
    out = Path(sys.argv[1])
    known = rows(out)
    (out / "methods.json").write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    for row in known:
        mean = sum(row["scores"]) / len(row["scores"])
        int8 = [round(score, 2) for score in row["int8_scores"]]
        print(f"{row['arm']:14} {mean:6.2f}  {row['scores']}  {sum(row['seconds']):.0f} s  int8 {int8}")


if __name__ == "__main__":
    main()
