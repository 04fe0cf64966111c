"""The best chain on SST-2, as a table and as the front: shares of the teacher's scores, speed, size."""

from collections.abc import Mapping
from dataclasses import dataclass
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
FRONT = {
    "dense": "gte-small, dense (the teacher)",
    "dense int8": "the same in int8",
    "int4-three-50-texts": "its first 3 layers, half of their heads and neurons, taught, int8",
    "three-25": "its first 3 layers, a quarter of their heads and neurons, taught, int8",
    "two": "its first 2 layers whole, taught alike, int8",
    LARGE: "mpnet-base, dense (the teacher)",
    "four-67-mpnet": "gte-small's first 4 layers, two thirds of their heads and neurons, taught by it, int8",
}
"""What a reader sees first: both teachers, their students, and whole layers that were taught alike."""


@dataclass(frozen=True, kw_only=True)
class Shipped:
    """A model of the chain beside its teacher: test scores of its seeds, throughput and size."""

    tests: tuple[float, ...]
    share: float
    times: float | None
    """Throughput, times that of its teacher in torch fp32."""
    megabytes: float | None
    times_smaller: float | None


def shipped(name: str, known: Mapping[str, Any] | None = None) -> Shipped:
    """Return a model of the chain by its name in NAMES."""
    known = read("chain.json") if known is None else known
    scored, bench = _scored(known), {row["name"]: row for row in known["bench"]}
    teacher = LARGE if name.endswith(LARGE) else "dense"
    tests, of_teacher = ([row["test"] for row in scored[one]] for one in (name, teacher))
    base, row = bench.get(f"{teacher}, torch"), bench.get(_form(name))
    is_timed = base is not None and row is not None
    return Shipped(
        tests=tuple(tests),
        share=spread(tests).mean / spread(of_teacher).mean,
        times=row["times"] / base["times"] if is_timed else None,
        megabytes=row["megabytes"] if is_timed else None,
        times_smaller=base["megabytes"] / row["megabytes"] if is_timed else None,
    )


def front() -> str:
    """The README's table: what small models keep of their teachers, and what they are worth."""
    rows = []
    for name, words in FRONT.items():
        one = shipped(name)
        assert one.times is not None
        small = "" if name in TEACHERS else f", 1/{one.times_smaller:.1f}"
        rows.append(
            [
                words,
                str(len(one.tests)),
                with_interval(one.tests),
                f"{one.share:.1%}".replace("%", "\u00a0%"),
                f"**{one.times:.1f}\u00a0×**",
                f"{one.megabytes:.1f}\u00a0MB{small}",
            ]
        )
    head = ["SST-2, test set", "seeds", "accuracy (95\u00a0%)", "of its teacher", "throughput", "size"]
    return table(head, rows)


def chain(known: Mapping[str, Any] | None = None) -> str:
    """Write a row for each teacher and for each of its students in int8."""
    known = read("chain.json") if known is None else known
    bench, scored = {row["name"]: row for row in known["bench"]}, _scored(known)
    rows = [_row(name, scored, bench) for name in NAMES if scored.get(name)]
    head = ["", "seeds", "dev (95 %)", "kept", "test (95 %)", "kept", "throughput", "= structure × int8"]
    return table([*head, "latency", "MB", "size"], rows)


def _scored(known: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the scores by the names of NAMES: students in int8, teachers as they are."""
    scored: dict[str, list[Mapping[str, Any]]] = {}
    for row in known["scored"]:
        if row["student"] == "dense":
            scored.setdefault("dense" if row["form"] == "torch" else "dense int8", []).append(row)
        elif row["form"] == "int8":
            scored.setdefault(row["student"], []).append(row)
    return scored | {LARGE: [known[LARGE]] if known[LARGE] else []}


def _form(name: str) -> str:
    """Return the name in the bench of what is shipped: a teacher in torch, all others in int8."""
    return f"{name}, torch" if name in TEACHERS else f"{name.removesuffix(' int8')}, int8"


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
