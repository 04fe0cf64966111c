"""Tables about small models: every candidate on a CPU, students on a GPU."""

from dataclasses import dataclass
from typing import Any

from scripts.tables.numbers import read, table


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One model as it was measured: its throughput and size in one bench, its score on the test set."""

    name: str
    row: dict[str, Any]
    test: float | None
    test_share: float | None

    @property
    def throughput(self) -> float:
        return float(self.row["speedup"])


CANDIDATES: dict[str, tuple[str, str, str | None]] = {
    "dense, torch fp32": ("spinning_within_a_call", "dense", "dense"),
    "dense, int8": ("spinning_within_a_call", "dense int8", "dense int8"),
    "first 4 layers alone, int8": ("compress_speedup_8", "alone-4 int8", "alone-4 int8"),
    "first 4 layers whole, taught alike, int8": ("compress_speedup_8", "four int8", None),
    "first 4 layers, 60 % of heads and neurons, taught, int8": (
        "spinning_within_a_call",
        "four-60 int8",
        "four-60 int8",
    ),
    "the same, words cut to the training texts'": (
        "compress_speedup_15",
        "four-60 int8",
        "four-60 int8, words cut",
    ),
    "first 3 layers, 55 % of heads and neurons, taught, int8, words cut": (
        "spinning_within_a_call",
        "three-55 int8, words cut",
        "three-55 int8, words cut",
    ),
    "first 3 layers whole, taught alike, int8, words cut": ("compress_speedup_15", "three int8", None),
    "first 3 layers alone, int8, words cut": (
        "compress_speedup_15",
        "alone-3 int8",
        "alone-3 int8, words cut",
    ),
    "first 2 layers alone, int8, words cut": (
        "compress_speedup_15",
        "alone-2 int8",
        "alone-2 int8, words cut",
    ),
}
"""Name in a document -> the bench of throughput and size, the row's name there, and its name on the test set,
which was not asked for all. "Taught alike": as long, by the same teacher and on the same texts as the pruned
students."""


def candidates() -> dict[str, Candidate]:
    """Return every measured model by its name in a document."""
    students = read("ship-cpu.json")["students"]
    tested = {row["name"]: row["score"] for row in students["test_set"]["rows"]}
    known = {}
    for name, (bench, row_name, test_name) in CANDIDATES.items():
        (row,) = [row for row in students[bench]["rows"] if row["name"] == row_name]
        test = None if test_name is None else tested[test_name]
        share = None if test is None else test / tested["dense"]
        known[name] = Candidate(name=name, row=row, test=test, test_share=share)
    return known


def cpu() -> str:
    """Every candidate on two ARM cores, and Fisher pruning without training."""
    rows = []
    for one in candidates().values():
        rows.append(
            [
                one.name,
                f"{one.throughput:.2f} ×",
                f"{one.row['latency_gain']:.2f} ×",
                f"{one.row['score']:.2f}",
                "–" if one.test is None else f"{one.test:.2f} ({one.test_share:.1%})".replace("%", " %"),
                f"{one.row['megabytes']:.1f}",
            ]
        )
    rows.append(_two_taught())
    (fisher,) = [row for row in read("ship-cpu.json")["bench"]["rows"] if row["name"] == "fisher-0.62"]
    rows.append(
        [
            "Fisher to 0.62, torch fp32, no training",
            f"{fisher['speedup']:.2f} ×",
            f"{fisher['latency_gain']:.2f} ×",
            f"{fisher['score']:.2f}",
            "–",
            f"{fisher['megabytes']:.1f}",
        ]
    )
    return table(["", "throughput", "latency", "dev", "test", "MB"], rows)


def _two_taught() -> list[str]:
    """The first two layers, taught: scored in bf16 on the GPU alone; its shape was timed untaught."""
    same_shape = candidates()["first 2 layers alone, int8, words cut"]
    score = read("ship-gpu.json")["runs"]["two"]["result"]["score"]
    name = "first 2 layers whole, taught alike, bf16 (speed and size: those of the row above)"
    return [name, f"{same_shape.throughput:.2f} ×", "–", f"{score:.2f}", "–", "–"]


def forms() -> str:
    """Every form of the dense model and of its students, on each processor that was measured."""
    benches = {name: read(f"ship-{name}.json")["bench"]["rows"] for name in PROCESSORS}
    known = {name: {row["name"]: row for row in rows} for name, rows in benches.items()}
    rows = []
    for name in dict.fromkeys(row["name"] for rows in benches.values() for row in rows):
        cells = [FORM_NAMES.get(name, name)]
        for processor in known:
            row = known[processor].get(name)
            cells += ["–", "–"] if row is None else [_gain(row, "speedup"), _gain(row, "latency")]
        some = next(rows[name] for rows in known.values() if name in rows)
        rows.append([*cells, f"{some['score']:.2f}", f"{some['megabytes']:.1f}"])
    titles = [f"{name}: {what}" for name in PROCESSORS.values() for what in ("throughput", "latency")]
    return table(["", *titles, "dev", "MB"], rows)


PROCESSORS = {"x86": "x86-64"}
"""The files results/ship-NAME.json, and what a document calls their processor."""
FORM_NAMES = {"dense": "dense, torch fp32"}


def _gain(row: dict[str, Any], what: str) -> str:
    """A ratio with the least and the most of any round."""
    low, high = row[f"{what}_spread"]
    value = row["speedup" if what == "speedup" else "latency_gain"]
    return f"{value:.2f} × ({low:.2f} … {high:.2f})"


def int8_error() -> str:
    """How far logits move by each way to choose the scales of int8 weights."""
    known = read("int8-error.json")["relative_errors"]
    rows = []
    for name, errors in known.items():
        low, high = (f"{100 * end(errors):.2f}" for end in (min, max))
        rows.append([name, f"{100 * sum(errors) / len(errors):.2f} % ({low} … {high})"])
    return table(["weights", "error of the logits"], rows)


def gpu() -> str:
    """Students and the dense model in torch on one H200, against the dense fp32 model in the same run."""
    known = read("ship-cuda.json")["bench"]["rows"]
    first = {(t["batch"], t["length"]): t for t in known[0]["timings"]}
    rows = []
    for row in known:
        at = {(t["batch"], t["length"]): t for t in row["timings"]}
        cells = [row["name"]]
        for shape in ((128, 128), (128, 32)):
            rate, base = at[shape]["rows_per_second"], first[shape]["rows_per_second"]
            cells.append(f"{rate:,.0f} ({rate / base:.1f} ×)")
        p50, base = at[(1, 32)]["p50"], first[(1, 32)]["p50"]
        rows.append([*cells, f"{p50:.1f} ({base / p50:.1f} ×)", f"{row['peak_memory_mb']:.0f}"])
    return table(["", "rows/s, length 128", "rows/s, length 32", "ms, 1 × 32", "peak MB"], rows)
