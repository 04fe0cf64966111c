"""The tables of little data: bermo's defaults beside a frozen probe and contrastive training."""

import math
import statistics
from typing import Any

from scripts.tables.numbers import read, table

ENCODERS = {"gte": "gte-small", "minilm": "MiniLM-L6", "mpnet": "mpnet-base", "box": "the box"}
WAYS = ("bermo", "frozen", "setfit")
CELLS = {
    "trec-200": "TREC, 200 rows",
    "trec-500": "TREC, 500 rows",
    "trec": "TREC, 5,452 rows",
    "mr-200": "MR, 200 rows",
    "mr": "MR, 9,596 rows",
    "sst2-200": "SST-2, 200 rows",
    "cola-200": "CoLA, 200 rows",
    "mrpc-200": "MRPC, 200 rows",
    "rte-200": "RTE, 200 rows",
    "qnli-200": "QNLI, 200 rows",
    "qqp-200": "QQP, 200 rows",
    "mnli-200": "MNLI, 200 rows",
    "stsb-200": "STS-B, 200 rows (correlation)",
    "conll-200": "CoNLL-2003, 200 sentences (F1)",
    "conll": "CoNLL-2003, 14,041 sentences (F1)",
}
MARGIN = 1.0
PAIR_WAYS = {
    "joined": "as one text",
    "apart-mixed": "apart, with the mix and the whole rate",
    "apart": "apart, a linear probe of the plain encoder",
}


def scores() -> str:
    """Scores of the test rows: defaults / frozen probe / SetFit-like, for each encoder."""
    found = read("small-data.json")["encoders"]
    rows = [[name, *(_cell(found[encoder].get(key)) for encoder in ENCODERS)] for key, name in CELLS.items()]
    return table(["defaults / frozen / SetFit-like", *ENCODERS.values()], rows)


def reached() -> str:
    """In how many cells the defaults are at most a point behind the better of the two."""
    found = read("small-data.json")["encoders"]
    gaps = [
        gap
        for encoder in ENCODERS
        if encoder != "box"
        for cell in found[encoder].values()
        if (gap := _gap(cell)) is not None
    ]
    within = sum(gap >= -MARGIN for gap in gaps)
    worst = f"{min(gaps):.1f}".replace("-", "")
    return (
        f"In {within} of the {len(gaps)} cells of the three real encoders the defaults are at most a point"
        f" behind the better\nof the two; the furthest is {worst} points behind, the mean is"
        f" {sum(gaps) / len(gaps):+.1f} points."
    )


def apart() -> str:
    """Pairs read as one text and apart, trained and, apart, by a linear probe of the frozen encoder."""
    found = read("small-data.json")["encoders"]
    rows = [
        [f"{ENCODERS[encoder]}, {CELLS[key]}", *(_mean(cell, way) for way in PAIR_WAYS)]
        for encoder in ENCODERS
        for key, cell in found[encoder].items()
        if "joined" in cell
    ]
    return table(["pairs", *PAIR_WAYS.values()], rows)


LEARNED = {"MR, SST-2, TREC": ("mr-200", "sst2-200", "trec-200", "trec-500"), "CoLA": ("cola-200",)}
WIDTHS = {"gte-small and MiniLM-L6": ("gte", "minilm"), "mpnet-base": ("mpnet",)}
ROWS = {"rows kept for choosing": "small-data-choosing.json", "reported rows": "small-data.json"}


def kept_mean() -> str:
    """What a mean of the weights gives over the last ones, on rows kept for choosing and on reported ones."""
    rows = []
    for encoders, names in WIDTHS.items():
        for tasks, cells in LEARNED.items():
            gains = [_gains(file, names, cells) for file in ROWS.values()]
            rows.append([encoders, tasks, *map(_interval, [*gains, gains[0] + gains[1]])])
    return table(["points by the mean of the weights", "200 or 500 rows of", *ROWS, "both"], rows)


def contrast() -> str:
    """What a text's own mean over its pairs gives over a mean of all pairs of a batch."""
    others = tuple(key for key in CELLS if key not in LEARNED["CoLA"])
    rows = [
        [name, tasks, _interval(_gains("small-data.json", encoders, cells, ("pairs-alike", "bermo")))]
        for name, encoders in WIDTHS.items()
        for tasks, cells in (("CoLA", LEARNED["CoLA"]), ("the others", others))
    ]
    return table(["points by a text's own mean", "200 or 500 rows of", "reported rows"], rows)


def _gains(
    file: str, encoders: tuple[str, ...], cells: tuple[str, ...], ways: tuple[str, str] = ("off", "on")
) -> list[float]:
    """By how much the second way is better, for each draw of the cells that have both."""
    found = read(file)["encoders"]
    tried = [found[encoder][key] for encoder in encoders for key in cells if key in found[encoder]]
    pairs = [[cell[way]["scores"] for way in ways] for cell in tried if cell.keys() >= set(ways)]
    return [second - first for before, after in pairs for first, second in zip(before, after, strict=True)]


def _interval(gains: list[float]) -> str:
    """The mean with its 95 % interval, and of how many trainings."""
    error = 1.96 * statistics.stdev(gains) / math.sqrt(len(gains))
    return f"{statistics.fmean(gains):+.2f} ± {error:.2f} ({len(gains)})"


def _mean(cell: dict[str, Any], way: str) -> str:
    return f"{cell[way]['mean']:.1f}" if way in cell else "–"


def _gap(cell: dict[str, Any]) -> float | None:
    others = [cell[way]["mean"] for way in WAYS[1:] if way in cell]
    return cell["bermo"]["mean"] - max(others) if others else None


def _cell(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return "–"
    texts = [f"{cell[way]['mean']:.1f}" if way in cell else "–" for way in WAYS]
    gap = _gap(cell)
    mark = "**" if gap is not None and gap >= -MARGIN else ""
    return f"{mark}{texts[0]}{mark} / {texts[1]} / {texts[2]}"
