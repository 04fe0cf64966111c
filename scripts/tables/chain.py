"""The table of the best chain on SST-2: shares of the teacher's scores, and the speed as structure × int8."""

from collections.abc import Mapping
from typing import Any

from scripts.tables.numbers import read, spread, table, with_interval

NAMES = {
    "dense": "dense (the teacher)",
    "dense int8": "dense, int8",
    "three-50": "first 3 layers, half of heads and neurons",
    "int4-three-50": "the same, words in four bits",
    "int4-three-50-texts": "the same, taught on Wikipedia's sentences too",
    "three-33": "first 3 layers, half of the heads, a third of the neurons",
    "three-25": "first 3 layers, a quarter of heads and neurons",
    "two-50": "first 2 layers, half of heads and neurons",
    "two": "first 2 layers, taught alike",
    "one": "first layer, taught alike",
    "mpnet": "mpnet-base, dense (the teacher)",
    "four-67-mpnet": "gte-small's first 4 layers, two thirds of heads and neurons, taught by mpnet-base",
}
LARGE = "mpnet"
TEACHERS = ("dense", LARGE)


def chain(known: Mapping[str, Any] | None = None) -> str:
    """Write a row for each teacher and for each of its students in int8."""
    known = read("chain.json") if known is None else known
    bench = {row["name"]: row for row in known["bench"]}
    scored: dict[str, list[Mapping[str, Any]]] = {}
    for row in known["scored"]:
        if row["student"] == "dense":
            scored.setdefault("dense" if row["form"] == "torch" else "dense int8", []).append(row)
        elif row["form"] == "int8":
            scored.setdefault(row["student"], []).append(row)
    scored[LARGE] = [known[LARGE]] if known[LARGE] else []
    rows = [_row(name, scored, bench) for name in NAMES if scored.get(name)]
    head = ["", "seeds", "dev (95 %)", "kept", "test (95 %)", "kept", "throughput", "= structure × int8"]
    return table([*head, "latency", "MB", "size"], rows)


def _row(name: str, scored: Mapping[str, Any], bench: Mapping[str, Any]) -> list[str]:
    teacher = LARGE if name.endswith(LARGE) else "dense"
    cells = [NAMES[name], str(len(scored[name]))]
    for part in ("dev", "test"):
        scores = [row[part] for row in scored[name]]
        share = spread(scores).mean / spread([row[part] for row in scored[teacher]]).mean
        cells += [with_interval(scores), f"{share:.1%}".replace("%", " %")]
    return [*cells, *_speed(name, bench, bench.get(f"{teacher}, torch"))]


def _speed(name: str, bench: Mapping[str, Any], base: Mapping[str, Any] | None) -> list[str]:
    """Gains over the teacher in torch fp32; the student in torch has the structure's factor."""
    own, form = name.removesuffix(" int8"), "torch" if name in TEACHERS else "int8"
    row, plain = bench.get(f"{own}, {form}"), bench.get(f"{own}, torch")
    if base is None or row is None or plain is None:
        return ["–"] * 5
    times, structure = row["times"] / base["times"], plain["times"] / base["times"]
    factors = "1 × 1" if form == "torch" else f"{structure:.1f} × {times / structure:.1f}"
    size = base["megabytes"] / row["megabytes"]
    return [
        f"{times:.1f} ×",
        factors,
        f"{row['latency'] / base['latency']:.1f} ×",
        f"{row['megabytes']:.1f}",
        "1" if form == "torch" else f"1/{size:.1f}",
    ]
