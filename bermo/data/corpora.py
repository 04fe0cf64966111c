"""Tables and corpus formats to rows: plain text and pairs, SWAG, SQuAD's JSON.

Every row is checked: an empty text, a missing label or a text where a number is expected is an error that
names file and line.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bermo.data.objects import parse_json
from bermo.data.rows import ChoiceRows, SpanRows, TextRows
from bermo.data.table import Table
from bermo.data.text import read_text
from bermo.errors import BermoError, shortened
from bermo.files import DAMAGED
from bermo.printing import number_of

EXAMPLES = 3
"""Rows that a complaint names."""
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
DECIMAL_COMMA = re.compile(r"\s*[-+]?\d+,\d+\s*")
_WHOLE_FLOAT = re.compile(r"(-?\d+)\.0+")


Place = Callable[[int], str]
"""Where a row stands in its file, by its number from 0 on."""


def _row(index: int) -> str:
    return f"row {index + 1}"


def text_rows(table: Table, text: Sequence[str], label: str | None) -> TextRows:
    """Return one text or a pair a row, with its label as text where `label` names a column."""
    if len(text) > 2:
        raise BermoError(
            f"{len(text)} text columns were given ({', '.join(text)}), but a row has one text or two."
        )
    columns = [_texts(table, name) for name in text]
    labels = None if label is None else label_column(table, label)
    return TextRows(columns[0], columns[1] if len(columns) == 2 else None, labels)


def choice_rows(table: Table, text: Sequence[str], label: str | None) -> ChoiceRows:
    """Return SWAG's rows: a first sentence, and the start of the second with each of its endings."""
    first, start, *endings = [_texts(table, name) for name in text]
    texts = [[f"{begin} {end}" for end in ends] for begin, *ends in zip(start, *endings, strict=True)]
    return ChoiceRows(first, texts, None if label is None else label_column(table, label))


def drop_empty(table: Table, names: Sequence[str]) -> Table:
    """Return the table without the rows that have an empty cell in one of the columns."""
    empty = set(find_empty(table, names))
    kept = table.pick([i for i in range(len(table)) if i not in empty])
    return replace(kept, skipped=table.skipped + len(empty))


def without_empty(table: Table, names: Sequence[str]) -> Table:
    """Return the table without the rows that have no text, with a note that counts and names them."""
    empty = find_empty(table, names)
    if not empty:
        return table
    places = ", ".join(table.place(index) for index in empty[:EXAMPLES])
    places += ", …" if len(empty) > EXAMPLES else ""
    have = "has no text and is" if len(empty) == 1 else "have no text and are"
    note = f"{table.path.name}: {len(empty):,} of {len(table):,} rows {have} left out ({places})"
    left_out = set(empty)
    kept = table.pick([index for index in range(len(table)) if index not in left_out])
    return replace(kept, notes=(*table.notes, note))


def find_empty(table: Table, names: Sequence[str]) -> list[int]:
    """Return the numbers of the rows that have an empty cell in one of the columns."""
    columns = [table.column(name) for name in names]
    return [i for i in range(len(table)) if not all(column[i].strip() for column in columns)]


def label_column(table: Table, name: str) -> list[str]:
    """Return the labels as text, 1.0 as 1; an empty one, or one with a control character, is an error."""
    _check_filled(table, name, "the label", "missing. Fill it in")
    return [m[1] if (m := _WHOLE_FLOAT.fullmatch(cell)) else cell for cell in label_cells(table, name)]


def label_cells(table: Table, name: str) -> list[str]:
    """Return the cells of labels without blanks around them; one with a control character is an error."""
    values = [value.strip() for value in table.column(name)]
    for index, value in enumerate(values):
        if not value.isprintable() and CONTROL.search(value):
            raise BermoError(
                f"{table.path}, {table.place(index)}: the label {value!r} holds a control character."
                " Remove it."
            )
    return values


def _check_filled(table: Table, name: str, what: str, fault: str) -> None:
    empty = find_empty(table, (name,))
    if not empty:
        return
    others = ", ".join(table.place(index) for index in empty[1:EXAMPLES])
    others += ", …" if len(empty) > EXAMPLES else ""
    more = f" So is that of {number_of(len(empty) - 1, 'other row')} ({others})."
    raise BermoError(
        f'{table.path}, {table.place(empty[0])}: {what} (column "{name}") is {fault} or remove the row.'
        + (more if others else "")
    )


def numbers(rows: TextRows, path: Path | str, place: Place = _row) -> TextRows:
    """Return the rows with their labels read as numbers, for regression; `place` says where a row stands."""
    if rows.labels is None:
        return rows
    values = []
    for index, label in enumerate(rows.labels):
        value = as_number(str(label))
        if value is None:
            point = with_point(str(label))
            remedy = f"Write a point, {point}" if point != label else "Correct it, or remove the row"
            raise BermoError(
                f'{path}, {place(index)}: the label "{shortened(str(label))}" is not a number. {remedy}.'
            )
        values.append(value)
    return TextRows(rows.first, rows.second, values)


def relevance(rows: TextRows, path: Path | str, place: Place = _row) -> TextRows:
    """Return pairs with their labels as numbers from 0 to 1, for a reranker."""
    if rows.second is None:
        raise BermoError(
            f"{path} has one text a row, but a reranker reads pairs. Give a query and a text, or name both"
            " columns with --text."
        )
    read = numbers(rows, path, place)
    for index, value in enumerate(read.labels or ()):
        if not 0 <= float(str(value)) <= 1:
            raise BermoError(
                f"{path}, {place(index)}: the label {value} is not from 0 (does not answer) to 1 (answers"
                " best). Divide all labels by the largest."
            )
    return read


def with_point(text: str) -> str:
    """Return a number that has a decimal comma with a point, and any other text as it is."""
    return text.replace(",", ".") if DECIMAL_COMMA.fullmatch(text) else text


def as_number(text: str) -> float | None:
    """Return the finite number that `text` holds, or None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _texts(table: Table, name: str) -> list[str]:
    _check_filled(table, name, "the text", "empty. Fill it")
    return table.column(name)


def to_iob2(tags: Sequence[str]) -> list[str]:
    """Return the same entities with B- on the first word of each (IOB1 has it only where two meet)."""
    fixed, before = [], "O"
    for tag in tags:
        starts = tag.startswith("I-") and before[2:] != tag[2:]
        fixed.append(f"B-{tag[2:]}" if starts else tag)
        before = tag
    return fixed


def read_squad(path: Path, is_train: bool) -> SpanRows:
    """Read SQuAD's JSON; in training an answer must occur in its passage, at its offset or elsewhere."""
    content = parse_json(path, read_text(path))
    ids, questions, contexts, answers = [], [], [], []
    try:
        for article in content["data"]:
            for paragraph in article["paragraphs"]:
                for item in paragraph["qas"]:
                    ids.append(str(item["id"]))
                    questions.append(str(item["question"]))
                    contexts.append(str(paragraph["context"]))
                    answers.append(_answers(item))
    except DAMAGED as error:
        raise BermoError(
            f"{path} is not in SQuAD's form (data > paragraphs > context, qas > id, question,"
            f" answers): {error!r} failed after {len(ids)} questions."
        ) from None
    if not ids:
        raise BermoError(f"{path} holds no questions.")
    return check_spans(SpanRows(ids, questions, contexts, answers), path, is_train)


def _answers(item: dict[str, Any]) -> list[tuple[str, int]]:
    if item.get("is_impossible"):
        return []
    answers = [(answer["text"], int(answer["answer_start"])) for answer in item["answers"]]
    for text, _ in answers:
        if not isinstance(text, str):
            raise TypeError(f"an answer is {text!r}, not a text")
    return answers


def check_spans(rows: SpanRows, path: Path | str, is_train: bool) -> SpanRows:
    """Check that no text is empty and, in training, correct the offset of each answer in its passage."""
    answers = []
    for i, given in enumerate(rows.answers or ()):
        if not rows.questions[i].strip() or not rows.contexts[i].strip():
            raise BermoError(f"{path}: question {rows.ids[i]} has an empty question or context.")
        answers.append([_with_offset(rows, i, answer, path) for answer in given] if is_train else given)
    return SpanRows(rows.ids, rows.questions, rows.contexts, answers)


def _with_offset(rows: SpanRows, i: int, answer: tuple[str, int], path: Path | str) -> tuple[str, int]:
    text, start = answer
    if text and start >= 0 and rows.contexts[i].startswith(text, start):
        return answer
    start = rows.contexts[i].find(text)
    if not text or start < 0:
        raise BermoError(
            f'{path}: the answer "{text}" of question {rows.ids[i]} does not occur in its context.'
        )
    return text, start
