"""Texts to be answered, block by block: a file of any length needs the memory of one block.

    for block in text_blocks(path, names, size): …        tables of at most `size` rows with named columns
    input_rows(block, task, names)                         the rows that a model of the task reads

A .txt file and standard input hold one text a line; where a model reads several texts a row, they are apart
by tabs. All other files are tables, and so is a .txt file of several texts a row whose first line names them.
A file of words with their tags gives a tagger its sentences.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from bermo.data.columns import OF_ANSWERS, PAIRS, Flags, find_columns
from bermo.data.corpora import choice_rows, find_empty
from bermo.data.fasttext import is_fasttext
from bermo.data.packed import kind_of
from bermo.data.questions import read_questions
from bermo.data.read import read_blocks
from bermo.data.rows import ApartRows, Rows, SpanRows, TaggedRows, TextRows
from bermo.data.table import Table
from bermo.data.tasks import Task
from bermo.data.text import read_lines, read_sample
from bermo.data.word_files import holds_tagged_words, word_blocks
from bermo.errors import BermoError

QUESTION = ("question", "context")
"""The columns that a model of spans reads from a table."""
WHOLE_LINES = ("classification", "multi-label", "regression", "tagging", "embedding")
"""Kinds of task that read one text a row, where a line of a .txt file is all of it."""
WORDS = ("words", "tokens", "text")
"""Columns of a tagger's words, a list of them or a text with blanks between them."""


def line_names(task: Task, text: Sequence[str]) -> tuple[str, ...]:
    """Name the columns of lines without a header: those of training, in its order."""
    if task.kind == "span":
        return QUESTION
    if task.kind == "choice" and not text:
        raise BermoError(
            "The model chooses among several texts, and its folder does not say how they are called. Give a"
            " file with columns."
        )
    return tuple(text) if text and task.kind != "tagging" else ("text",)


def line_blocks(
    lines: Iterable[str], names: Sequence[str], size: int, source: str = "standard input"
) -> Iterator[Table]:
    """Yield lines as tables; several texts a line are apart by tabs."""
    numbered = enumerate(lines, start=1)
    while block := list(islice(numbered, size)):
        cells = [_cells(source, number, line.rstrip("\r\n"), names) for number, line in block]
        columns = {name: list(column) for name, column in zip(names, zip(*cells, strict=True), strict=True)}
        yield Table(Path(source), columns, [number for number, _ in block], is_lines=True)


def _cells(source: str, number: int, line: str, names: Sequence[str]) -> list[str]:
    if len(names) == 1:
        return [line]
    cells = line.split("\t")
    if len(cells) != len(names) and line.strip():
        typed = r" Write them like this: --text $'first text\tsecond text'." if source == "--text" else ""
        raise BermoError(
            f"{source}, line {number}: the model reads {len(names)} texts a row ({', '.join(names)}), apart"
            f" by tabs, but got {len(cells)}.{typed}"
        )
    return cells if len(cells) == len(names) else [""] * len(names)


def text_blocks(
    path: Path,
    task: Task,
    text: Sequence[str],
    size: int,
    separator: str | None = None,
    tags: Collection[str] = (),
) -> Iterator[Table]:
    """Yield a file as tables of at most `size` rows; no row is left out.

    A tagger that gives `tags` also reads a file in the form of its training: words with tags beside them.
    """
    kind = kind_of(path)
    if task.kind == "span" and kind == ".json":
        yield from _squad_table(path).blocks(size)
    elif task.kind == "tagging" and separator is None and holds_tagged_words(path, tags):
        yield from word_blocks(path, size)
    elif kind == ".txt" and task.kind in WHOLE_LINES and separator is None and not _is_table(path, text):
        names = tuple(text) if len(text) > 1 else ("text",)
        yield from line_blocks(read_lines(path, read_sample(path)), names, size, str(path))
    else:
        yield from read_blocks(path, size, separator)


def _is_table(path: Path, text: Sequence[str]) -> bool:
    """Tell whether the first line of a .txt file has a label of fastText's, or names the columns of several
    texts.
    """
    if is_fasttext(read_sample(path)):
        return True
    if len(text) < 2:
        return False
    first = next(iter(read_lines(path, read_sample(path))), "")
    cells = {cell.strip().lower() for cell in first.split("\t")}
    return any(cells.issuperset(name.lower() for name in names) for names in (text, *PAIRS))


def _squad_table(path: Path) -> Table:
    rows = read_questions(path, is_train=False)
    columns = {"id": list(rows.ids), "question": list(rows.questions), "context": list(rows.contexts)}
    return Table(path, columns, list(range(1, len(rows) + 1)))


def input_names(
    table: Table, task: Task, text: Sequence[str], given: Sequence[str] = (), flags: Flags = OF_ANSWERS
) -> tuple[str, ...]:
    """Return the columns that the model reads: those given, those of training, or those with usual names."""
    for name in given:
        table.column(name)
    if task.kind == "span":
        return tuple(given) or QUESTION
    if task.kind == "tagging":
        return tuple(given[:1]) or (next((name for name in WORDS if table.has(name)), WORDS[-1]),)
    if task.kind == "choice":
        return tuple(given) or tuple(text) or task.train[0].text
    known = given or (text if text and all(table.has(name) for name in text) else None)
    names = find_columns(table, known, None, needs_label=False, flags=flags).text
    if text and len(names) != len(text) and task.kind != "embedding":
        raise BermoError(
            f"{table.path} has the text column(s) {', '.join(names)}, but the model reads {len(text)}"
            f" a row. Call them {', '.join(text)}, as in training."
        )
    return names


def inputs_of(table: Table, task: Task, text: Sequence[str] = ()) -> Rows:
    """Return the rows of a table without their answers; no text may be empty."""
    return input_rows(table, task, input_names(table, task, text))


def filled_rows(table: Table, names: Sequence[str]) -> list[int]:
    """Return the numbers of the rows in which no text is empty."""
    empty = set(find_empty(table, names))
    return [row for row in range(len(table)) if row not in empty]


def input_rows(table: Table, task: Task, names: Sequence[str]) -> Rows:
    """Return a block as the rows that a model of the task reads; no text may be empty."""
    match task.kind:
        case "span":
            questions, contexts = (table.column(name) for name in names)
            ids = table.column("id") if table.has("id") else [str(line) for line in table.lines]
            return SpanRows(ids, questions, contexts)
        case "tagging":
            return TaggedRows([_words(cell) for cell in table.column(names[0])])
        case "choice":
            return choice_rows(table, names, None)
        case "embedding":
            return ApartRows(list(zip(*(table.column(name) for name in names), strict=True)))
        case _:
            first, *second = (table.column(name) for name in names)
            return TextRows(first, second[0] if second else None)


def _words(cell: str) -> list[str]:
    """Return the words of a text, or of a list of words as JSON writes it."""
    if cell.startswith("["):
        try:
            words = json.loads(cell)
        except ValueError:
            return cell.split()
        if isinstance(words, list) and words and all(isinstance(word, str) for word in words):
            return words
    return cell.split()
