"""The table of sentence encoders that were made small without labels."""

import statistics
from collections.abc import Mapping
from typing import Any

from scripts.tables.numbers import read, spread, table

SCORES = ("spearman", "ndcg_10")
INT8 = ", int8"


def students() -> str:
    """Scores of each student, their share of the dense encoder's, and times on a CPU."""
    known = read("sentence.json")
    rows = []
    for encoder, measured in known["encoders"].items():
        dense = next(row for row in measured if row["name"] == "dense")
        times = {row["name"]: row for row in known["bench"][encoder]}
        for name in dict.fromkeys(row["name"] for row in measured):
            runs = [row for row in measured if row["name"] == name]
            shares = [f"{100 * _mean(runs, key) / dense[key]:.1f} %" for key in SCORES]
            rows.append(
                [encoder, name, *(_cell(runs, key) for key in SCORES), *shares, *_speed(times.get(name))]
            )
    head = ["encoder", "student", "STS-B dev", "nDCG@10", "kept", "kept", "throughput", "latency", "MB"]
    return table(head, rows)


def _mean(runs: list[Mapping[str, Any]], key: str) -> float:
    return statistics.fmean(row[key] for row in runs)


def _cell(runs: list[Mapping[str, Any]], key: str) -> str:
    found = spread([row[key] for row in runs])
    half = f" ± {found.interval[1] - found.mean:.2f}" if found.interval else ""
    return f"{found.mean:.2f}{half}"


def _speed(row: Mapping[str, Any] | None) -> list[str]:
    return (
        [f"{row['times']:.2f} ×", f"{row['latency']:.2f} ×", f"{row['megabytes']:.1f}"] if row else ["–"] * 3
    )
