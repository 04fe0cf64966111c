"""What tests of the numbers within sentences share: the sentences of a document, and the grid's means."""

import re
from statistics import fmean

from scripts.tables.numbers import read
from tests.docs.documents import ROOT

NUMBERS = [
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
]


def text_of(document: str) -> str:
    """Return a document's text on one line."""
    return re.sub(r"\s+", " ", (ROOT / document).read_text(encoding="utf-8"))


def last_scores_in_grid(encoder: str, task: str, method: str, is_mix: bool) -> list[float]:
    """Return the last evaluations of a cell's seeds that live."""
    cell = (encoder, task, method, is_mix)
    rows = [r for r in read("grid.json") if (r["encoder"], r["task"], r["method"], r["mix"]) == cell]
    return [row["last"] for row in rows if not row["dead"]]


def in_grid(encoder: str, task: str, method: str, is_mix: bool) -> float:
    """Return the mean of the last evaluations of a cell's seeds that live."""
    return fmean(last_scores_in_grid(encoder, task, method, is_mix))


def both_in_grid(encoder: str, task: str, method: str) -> tuple[float, float]:
    """Return a cell's means without the mix and with it."""
    return in_grid(encoder, task, method, False), in_grid(encoder, task, method, True)


def number_or_word(count: int) -> str:
    return NUMBERS[count] if count < len(NUMBERS) else str(count)
