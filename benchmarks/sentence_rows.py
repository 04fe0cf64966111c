"""Put the rows of sentence.py into results/sentence.json: scores, and times of the bench.

    python benchmarks/sentence_rows.py OUT/table.json NAME results/sentence.json

NAME is the encoder's in the table, such as gte-small. Rows of the same student and seed are replaced, others
stay; `python scripts/make_tables.py` then writes the table. Times are put in with the scores' names, so that
those of students that were not timed again stay too.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bermo.files import write_json
from bermo.machine import processor

Row = Mapping[str, Any]
DIGITS = 3


def merged(old: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """Return the old rows with the new ones in the place of those that they repeat, and the others after."""
    rows = {(row["name"], row.get("seed")): row for row in old}
    rows |= {(row["name"], row.get("seed")): _rounded(row) for row in new}
    return list(rows.values())


def _rounded(row: Row) -> Row:
    return {key: round(value, DIGITS) if isinstance(value, float) else value for key, value in row.items()}


def put_in(results: dict[str, Any], encoder: str, rows: Sequence[Row], machine: str) -> None:
    """Add the rows of an encoder, in place: scores to `encoders`, times to `bench` with their machine."""
    timed = [dict(row) | {"machine": machine} for row in rows if "times" in row]
    scored = [row for row in rows if "spearman" in row]
    for part, new in (("encoders", scored), ("bench", timed)):
        results[part][encoder] = merged(results[part].get(encoder, []), new)


def main() -> None:
    table, encoder, target = sys.argv[1:]
    results = json.loads(Path(target).read_text(encoding="utf-8"))
    own = processor()
    rows = json.loads(Path(table).read_text(encoding="utf-8"))
    put_in(results, encoder, rows, f"{own.name}, {own.cores} cores")
    write_json(Path(target), results)


if __name__ == "__main__":
    main()
