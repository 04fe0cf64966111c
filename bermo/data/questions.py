"""The user's own files for questions on a passage: SQuAD's JSON, or a table.

    question, context, answer                    an empty answer: the passage does not say
    question, context, answer, answer_start      the answer's first character, counted from 0
    question, context, answers                   as the hub has it: {"text": […], "answer_start": […]}

Where the start is not given, it is the answer's first place in the passage.
"""

import json
from pathlib import Path
from typing import Any

from bermo.data.corpora import as_number, check_spans, read_squad
from bermo.data.objects import parse_json
from bermo.data.packed import kind_of
from bermo.data.read import read_table
from bermo.data.rows import SpanRows
from bermo.data.table import Table
from bermo.data.text import read_text
from bermo.errors import BermoError

ANSWERS = ("answers", "answer")
EXPECTED = "Expected the columns question, context and answer (empty where the passage has none)."


def read_questions(path: Path, is_train: bool, separator: str | None = None) -> SpanRows:
    """Read questions with their passages and answers; in training an answer must occur in its passage."""
    if kind_of(path) == ".json" and separator is None and _is_squad(path):
        return read_squad(path, is_train)
    table = read_table(path, separator=separator)
    name = next(filter(table.has, ANSWERS), None)
    if name is None or not (table.has("question") and table.has("context")):
        there = ", ".join(f'"{known}"' for known in table.columns)
        raise BermoError(f"{path} has the columns {there}. {EXPECTED}")
    starts = table.column("answer_start") if table.has("answer_start") else [""] * len(table)
    cells = zip(table.column(name), starts, strict=True)
    answers = [_answers(table, index, *cell) for index, cell in enumerate(cells)]
    ids = table.column("id") if table.has("id") else [table.place(index) for index in range(len(table))]
    return check_spans(
        SpanRows(ids, table.column("question"), table.column("context"), answers), path, is_train
    )


def _is_squad(path: Path) -> bool:
    content = parse_json(path, read_text(path))
    return isinstance(content, dict) and "data" in content


def _answers(table: Table, index: int, cell: str, start: str) -> list[tuple[str, int]]:
    """Return the answers of a row, each with its first character; −1 where that is not given."""
    if not cell.strip():
        return []
    if cell.lstrip().startswith(("{", "[")):
        listed = _listed(cell)
        if listed is not None:
            return listed
    place = as_number(start) if start.strip() else -1.0
    if place is None or not place.is_integer():
        raise BermoError(
            f'{table.path}, {table.place(index)}: answer_start is "{start}", but the number of a letter was'
            " expected."
        )
    return [(cell, int(place))]


def _listed(cell: str) -> list[tuple[str, int]] | None:
    """Return the answers of a cell of JSON; None where it is a text that only looks like it."""
    try:
        value: Any = json.loads(cell)
    except (ValueError, RecursionError):
        return None
    texts = value.get("text") if isinstance(value, dict) else value
    starts = value.get("answer_start") if isinstance(value, dict) else None
    texts = [texts] if isinstance(texts, str) else texts
    starts = [starts] if isinstance(starts, int) else starts
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return None
    if not isinstance(starts, list) or [type(start) for start in starts] != [int] * len(texts):
        starts = [-1] * len(texts)
    return list(zip(texts, starts, strict=True))
