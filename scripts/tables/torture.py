"""What kills, failing disks and damaged files did to every kind of command."""

from scripts.tables.numbers import read, table

ENDS = ("tries", "survived", "lost", "different", "hung", "tracebacks")


def faults() -> str:
    """One row for each kind of fault, and one for all of them."""
    known = read("torture.json")["by_fault"]
    rows = [[name, *(f"{counts[end]:,}" for end in ENDS)] for name, counts in known.items()]
    total = ["all", *(f"{sum(counts[end] for counts in known.values()):,}" for end in ENDS)]
    return table(["", *ENDS], [*rows, total])


def kills() -> str:
    """How many signals ended a process, how long it took and where."""
    known = read("torture.json")
    return (
        f"{known['kills']:,} kills in {known['seconds'] / 60:.0f} minutes, {known['workers']} workers, seed"
        f" {known['seed']}, {known['processor']}."
    )
