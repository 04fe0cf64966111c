"""Attention heads on UD EWT: which follow a relation, and which follow a fixed pattern."""

from typing import Any

from scripts.tables.numbers import read, table

FILE = "heads-cpu.json"
LEVEL = 0.05
FEWEST = 200
"""Test words of a relation that has a row."""
MOSTLY = 0.5


def relations() -> str:
    """The head of each encoder that follows a frequent relation, beside the best fixed offset."""
    models = read(FILE)["models"]
    by_name = {name: {row["relation"]: row for row in found["relations"]} for name, found in models.items()}
    first = next(iter(by_name.values()))
    rows = [
        [
            f"{relation} ({row['words']})",
            f"{row['offset_right']:.0f} ({row['offset']:+d})",
            *(_head(known[relation]) for known in by_name.values()),
        ]
        for relation, row in first.items()
        if row["words"] >= FEWEST
    ]
    rows.append(["relations that a head follows", "–", *(_followed(known) for known in by_name.values())])
    return table(["relation (words)", "fixed offset", *(f"{name}: head" for name in by_name)], rows)


def _is_followed(row: Any) -> bool:
    return bool(row["p"] < LEVEL and row["right"] > row["offset_right"])


def _head(row: Any) -> str:
    low, high = row["interval"]
    found = f"{row['right']:.0f} ({low:.0f} to {high:.0f}), {row['layer']}.{row['head']}"
    return f"**{found}**" if _is_followed(row) else found


def _followed(known: Any) -> str:
    return f"{sum(map(_is_followed, known.values()))} of {len(known)}"


def patterns() -> str:
    """How many heads of each encoder follow one fixed pattern for most tokens."""
    rows = []
    for name, found in read(FILE)["models"].items():
        shares = found["patterns"]
        grids = zip(*(grid for grid in shares.values()), strict=True)
        heads = [cells for layer in grids for cells in zip(*layer, strict=True) if cells[0] is not None]
        best = [max(zip(cells, shares, strict=True)) for cells in heads]
        counts = [sum(share > MOSTLY and kind == pattern for share, kind in best) for pattern in shares]
        rows.append(
            [name, str(len(heads)), *map(str, counts), str(sum(share <= MOSTLY for share, _ in best))]
        )
    names = list(next(iter(read(FILE)["models"].values()))["patterns"])
    return table(["encoder", "heads", *names, "none"], rows)
