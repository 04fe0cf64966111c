"""The texts of an analysis: lines of a .txt file or columns of a table, no duplicates, sampled evenly."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bermo.analyse.labelled import texts_of
from bermo.data.columns import NO_FLAGS, find_columns
from bermo.data.corpora import text_rows
from bermo.data.read import read_table
from bermo.data.rows import TextRows
from bermo.data.text import read_text
from bermo.data.unknown import check_unknown, count_unknown
from bermo.errors import BermoError
from bermo.vectors import Encoder


def read_texts(path: Path) -> list[str]:
    """Read the texts of a file; empty lines are left out."""
    if path.suffix.lower() in (".txt", ""):
        lines = [line.strip() for line in read_text(path).splitlines()]
    else:
        table = read_table(path)
        columns = find_columns(table, None, None, needs_label=False, flags=NO_FLAGS).text
        lines = texts_of(text_rows(table, columns, None))
    return distinct(lines, path)


def distinct(lines: Sequence[str], path: Path | str) -> list[str]:
    """Return each text once, in order: a text that comes twice is no second context."""
    texts = list(dict.fromkeys(line for line in lines if line.strip()))
    if not texts:
        raise BermoError(f"{path} holds no text. Give a file with one text a line.")
    return texts


def choose(texts: Sequence[str], count: int) -> tuple[str, ...]:
    """Return at most `count` texts, evenly chosen."""
    if count < 1:
        raise BermoError(f"max-texts must be at least 1, but got {count}.")
    if len(texts) <= count:
        return tuple(texts)
    return tuple(texts[k * len(texts) // count] for k in range(count))


def check_texts(encoder: Encoder, texts: Sequence[str], max_length: int, limit: float) -> None:
    """Refuse texts of which the tokenizer knows too little, or which have no token at all."""
    batch = encoder.tokenizer(
        list(texts), truncation=True, max_length=max_length, verbose=False, add_special_tokens=False
    )
    ids = np.array([token for row in batch["input_ids"] for token in row], dtype=np.int32)
    if not len(ids):
        raise BermoError(f"The tokenizer of {encoder.name} finds no token in these texts.")
    check_unknown(
        count_unknown(ids, encoder.tokenizer).share, limit, TextRows(list(texts)), encoder.tokenizer
    )
