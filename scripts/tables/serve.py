"""The table of the server's load test."""

from collections.abc import Mapping
from typing import Any

from scripts.tables.numbers import RESULTS, read, table

FILE = "serve.json"
HEAD = (
    "model",
    "naive, answers/s",
    "bermo serve",
    "times",
    "p99 naive",
    "p99",
    "lost at SIGTERM",
    "twice the capacity: answers/s",
    "p99",
    "lost",
)


def load() -> str:
    """Answers a second and the slowest of a hundred, beside a naive server; what a stop and too much lose."""
    if not (RESULTS / FILE).exists():
        return "Not measured yet."
    return table(HEAD, [_row(name, found) for name, found in read(FILE).items()])


def _row(name: str, found: Mapping[str, Any]) -> list[str]:
    naive, ours, twice = found["naive"], found["bermo"], found["twice"]
    return [
        name,
        f"{naive['answers_per_second']:.1f}",
        f"{ours['answers_per_second']:.1f}",
        f"{found['times_naive']:.2f} ×",
        f"{naive['p99_ms']:.0f} ms",
        f"{ours['p99_ms']:.0f} ms",
        str(found["stop"]["lost"]),
        f"{twice['answers_per_second']:.1f}",
        f"{twice['p99_ms']:.0f} ms",
        str(twice["lost"]),
    ]
