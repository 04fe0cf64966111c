"""Which columns of a user's file hold the text and the label, and whether labels are classes or numbers.

Columns are recognised by their usual names, in the order of the tables below. The user is shown which were
chosen.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bermo.data.corpora import as_number
from bermo.data.packed import kind_of
from bermo.data.table import Table
from bermo.errors import BermoError

PAIRS = (
    ("text_a", "text_b"),
    ("text1", "text2"),
    ("sentence1", "sentence2"),
    ("sentence_a", "sentence_b"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("query", "passage"),
    ("query", "document"),
    ("question", "context"),
)
TEXTS = (
    "text",
    "sentence",
    "review",
    "content",
    "comment",
    "tweet",
    "message",
    "body",
    "document",
    "utterance",
    "question",
    "query",
    "headline",
    "title",
    "description",
)
LABELS = (
    "label",
    "labels",
    "gold_label",
    "class",
    "target",
    "sentiment",
    "category",
    "score",
    "rating",
    "stars",
    "intent",
    "topic",
    "emotion",
    "is_duplicate",
    "y",
)
MOST_SWITCHES = 6
"""Columns of 0 and 1 that an error names."""
MOST_CLASS_VALUES = 20
"""Broken numbers with more different values than this are a measure, not classes (half stars have 10)."""


@dataclass(frozen=True)
class Columns:
    """The names of the text column or columns, and of the label's."""

    text: tuple[str, ...]
    label: str | None


@dataclass(frozen=True)
class Flags:
    """The options of a command that name the columns of a file; None where it has no such option."""

    text: str | None
    label: str | None


OF_TRAINING = Flags("--text", "--label")
OF_ANSWERS = Flags("--columns", None)
"""Where texts are answered or encoded, --text is a text itself."""
NO_FLAGS = Flags(None, None)


def find_columns(
    table: Table,
    text: Sequence[str] | None,
    label: str | None,
    needs_label: bool = True,
    flags: Flags = OF_TRAINING,
) -> Columns:
    """Return the columns that were given, or else those with a usual name; an error if there is none."""
    for name in (*(text or ()), *([label] if label else ())):
        table.column(name)
    label_name = label or (_usual(table, LABELS) if needs_label else None)
    text_names = tuple(text) if text else _text_columns(table, label_name)
    if needs_label and label_name is None and len(table.columns) == len(text_names) + 1:
        label_name = next(name for name in table.columns if name not in text_names)
    if not text_names or (needs_label and label_name is None):
        raise BermoError(_no_label(table, flags) if text_names else _no_text(table, flags))
    names = [name.lower() for name in (*text_names, *([label_name] if label_name else ()))]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise BermoError(
            f'{table.path}: the column "{twice[0]}" would be read twice (text {", ".join(text_names)}; label'
            f" {label_name}). Name different ones with --text and --label."
        )
    return Columns(text_names, label_name)


def _text_columns(table: Table, label: str | None) -> tuple[str, ...]:
    names = {name.lower(): name for name in table.columns}
    for first, second in PAIRS:
        if first in names and second in names:
            return names[first], names[second]
    usual = _usual(table, TEXTS)
    others = [name for name in table.columns if name != label]
    if usual is None and label is not None and len(others) == 1:
        usual = others[0]
    return (usual,) if usual is not None else ()


def _usual(table: Table, known: Sequence[str]) -> str | None:
    names = {name.lower(): name for name in table.columns}
    return next((names[name] for name in known if name in names), None)


def _no_text(table: Table, flags: Flags) -> str:
    return _missing(table, "text", TEXTS, flags.text)


def _no_label(table: Table, flags: Flags) -> str:
    switches = [f'"{name}"' for name in table.columns if _is_switch(table.column(name))]
    if len(switches) < 2:
        return _missing(table, "label", LABELS, flags.label)
    shown = ", ".join(switches[:MOST_SWITCHES]) + (", …" if switches[MOST_SWITCHES:] else "")
    return (
        f"{table.path}: no column has a usual name for the label, and {len(switches)} hold 0 and 1 alone"
        f" ({shown}). If each of them is a label, write the names of those that are 1 into one column"
        ' "labels", with | between them; an empty cell has none.'
    )


def _is_switch(cells: Sequence[str]) -> bool:
    return {str(cell).strip() for cell in cells} == {"0", "1"}


def _missing(table: Table, part: str, known: Sequence[str], flag: str | None) -> str:
    there = ", ".join(f'"{name}"' for name in table.columns)
    way = "Call" if flag is None else f"Name it with {flag}, or call"
    example = "text,label" if kind_of(table.path) == ".csv" else "text<TAB>label"
    return (
        f"{table.path}: no column has a usual name for the {part}. Its columns: {there}. {way} it one of"
        f" {', '.join(known[:6])}, …" + table.if_no_header(f", such as {example}")
    )


def are_numbers(labels: Sequence[str]) -> bool:
    """Tell whether labels are a measure: all numbers, some of them broken, and many different ones."""
    values = [as_number(label) for label in labels]
    if any(value is None for value in values):
        return False
    different = {value for value in values if value is not None}
    is_broken = any(not value.is_integer() for value in different)
    return is_broken and len(different) > min(MOST_CLASS_VALUES, len(values) // 2)
