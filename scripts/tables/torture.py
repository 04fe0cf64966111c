"""What kills, failing disks and damaged files did to every kind of command, and changed files to readers."""

from typing import Any

from scripts.tables.numbers import read, table

ENDS = ("tries", "survived", "lost", "different", "hung", "tracebacks")
FUZZED = {"inputs": "inputs", "refused": "refused", "accepted": "accepted", "fault": "faults"}


def faults() -> str:
    """One row for each kind of fault, and one for all of them."""
    known = read("torture.json")["by_fault"]
    rows = [[name, *(f"{counts[end]:,}" for end in ENDS)] for name, counts in known.items()]
    total = ["all", *(f"{sum(counts[end] for counts in known.values()):,}" for end in ENDS)]
    return table(["", *ENDS], [*rows, total])


def kills() -> str:
    """How many signals and failing disks hit a process, how long it took and where."""
    known = read("torture.json")
    return f"{known['kills']:,} kills:\n\n{_sittings(known)}"


def fuzz() -> str:
    """One row for each reader, and one for all of them."""
    rows = read("fuzz.json")["readers"]
    total = {"reader": "all"} | {name: sum(row[name] for row in rows) for name in FUZZED}
    cells = [[row["reader"], *(f"{row[name]:,}" for name in FUZZED)] for row in (*rows, total)]
    return table(["reader", *FUZZED.values()], cells)


def inputs() -> str:
    """How many changed files there were, how long it took and where."""
    known = read("fuzz.json")
    return f"{known['inputs']:,} inputs:\n\n{_sittings(known)}"


def _sittings(known: dict[str, Any]) -> str:
    """Seed, minutes, workers and processor of each sitting, a line each."""
    return "\n".join(
        f"- seed {sitting['seed']}: {sitting['seconds'] / 60:.0f} minutes, workers: {sitting['workers']},"
        f" {sitting['processor']}"
        for sitting in known["sittings"]
    )
