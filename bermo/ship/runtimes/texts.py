"""Texts to measure with: the user's rows with their answers, or generated sentences."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bermo.data.apart import read_pairs
from bermo.data.columns import NO_FLAGS, OF_TRAINING, Columns, Flags, find_columns
from bermo.data.corpora import (
    choice_rows,
    label_cells,
    numbers,
    relevance,
    text_rows,
    without_empty,
)
from bermo.data.features import Features, tokenise
from bermo.data.generated import generate_rows
from bermo.data.inputs import filled_rows, input_names, input_rows, text_blocks
from bermo.data.label_lists import read_labels
from bermo.data.questions import read_questions
from bermo.data.read import Table, read_table
from bermo.data.rows import ApartRows, ChoiceRows, Rows, SpanRows, TaggedRows, TextRows, label_names
from bermo.data.tagged import read_tagged
from bermo.data.unknown import check_ids
from bermo.encoders.plain_tokenizer import AnyTokenizer
from bermo.errors import BermoError, nearest, shortened
from bermo.printing import number_of
from bermo.runs.task_file import TrainedTask
from bermo.runs.trained import TrainedFolder
from bermo.spec import DataSpec

BUILT_IN = 64
"""Generated texts that a conversion is compared on where the user gives no file."""
MOST_SENTENCES = 5
"""Texts have one to so many sentences: some runtimes answer wrongly from 19 tokens on, or at some lengths
alone.
"""


def labelled(opened: TrainedFolder, path: Path) -> Features:
    """Read a file with texts and answers for the task of a model, checked against its labels."""
    rows = read_answered(path, opened.trained, flags=NO_FLAGS).rows
    check_labels(rows, opened.trained, path)
    return features_of(opened, rows)


def unlabelled(opened: TrainedFolder, path: Path, limit: int) -> Features:
    """Read the first texts of a file that are not empty; answers are not read."""
    task, text = opened.trained.task, opened.trained.text
    for table in text_blocks(path, task, text, limit, tags=opened.trained.labels):
        names = input_names(table, task, text)
        filled = filled_rows(table, names)
        if filled:
            return features_of(opened, input_rows(table.pick(filled), task, names))
    raise BermoError(f"{path} has no text that is not empty.")


def built_in(opened: TrainedFolder) -> Features:
    """Return generated texts of many lengths in the form that the model reads."""
    made, _ = generate_rows("subject-number", (BUILT_IN, 1), seed=0)
    assert isinstance(made, TextRows)
    sentences = [*made.first, *made.first[:MOST_SENTENCES]]
    texts = [
        " ".join(sentences[index : index + 1 + index % MOST_SENTENCES]) for index in range(len(made.first))
    ]
    others = sentences[1 : len(texts) + 1]
    rows: Rows
    match opened.trained.task.kind:
        case "tagging":
            rows = TaggedRows([text.split() for text in texts])
        case "span":
            rows = SpanRows([str(index) for index in range(len(texts))], others, texts)
        case "choice":
            rows = ChoiceRows(texts, [[a, b] for a, b in zip(texts, others, strict=True)])
        case "embedding":
            rows = ApartRows([(text,) for text in texts])
        case _:
            rows = TextRows(texts, others if len(opened.trained.text) == 2 else None)
    return features_of(opened, rows)


def features_of(
    opened: TrainedFolder,
    rows: Rows,
    more_labels: Sequence[str] = (),
    tokenizer: AnyTokenizer | None = None,
) -> Features:
    """Tokenise rows with the model's own tokenizer and limits; `more_labels` are those it cannot give."""
    trained = opened.trained
    limits = DataSpec(max_length=trained.max_length, stride=trained.stride)
    labels = (*trained.labels, *more_labels)
    tokenizer = tokenizer or opened.load_reader()
    features = tokenise(rows, trained.task, labels, tokenizer, limits, opened.has_segments, opened.is_apart)
    check_ids(features.largest_id, opened.num_words, tokenizer)
    return features


def random_batch(opened: TrainedFolder, num_rows: int, length: int, vocabulary: int) -> dict[str, np.ndarray]:
    """Return tokens drawn at random, every row of the same length, for measurements of speed."""
    has_two = opened.trained.task.kind == "choice" or opened.is_apart
    shape = (num_rows, 2, length) if has_two else (num_rows, length)
    generator = np.random.default_rng(0)
    batch = {
        "input_ids": generator.integers(min(5, vocabulary - 1), vocabulary, shape),
        "attention_mask": np.ones(shape, dtype=np.int64),
    }
    if opened.has_segments:
        batch["token_type_ids"] = np.zeros(shape, dtype=np.int64)
    return batch


@dataclass(frozen=True, kw_only=True)
class Answered:
    """Rows with their answers; how many others had no text, and what is to be said of them."""

    rows: Rows
    num_empty: int = 0
    notes: tuple[str, ...] = ()


def read_answered(
    path: Path,
    trained: TrainedTask,
    text: Sequence[str] = (),
    label: str | None = None,
    separator: str | None = None,
    flags: Flags = OF_TRAINING,
) -> Answered:
    """Read texts and their answers; columns that are not named are those of training, else the usual ones.

    A row without a text is left out, as in training: it says nothing about the model.
    """
    match trained.task.kind:
        case "span":
            return Answered(rows=read_questions(path, is_train=False, separator=separator))
        case "tagging":
            return Answered(rows=read_tagged(path))
        case "embedding":
            return Answered(rows=read_pairs(path, text or None, label, separator))
        case "choice":
            table = read_table(path, separator=separator)
            names = tuple(text or trained.text or trained.task.valid[0].text)
            columns = Columns(names, label or trained.label or "label")
        case _:
            table = _table(path, trained, separator)
            columns = find_columns(table, *_known_columns(table, trained, text, label), flags=flags)
    filled = without_empty(table, columns.text)
    if not len(filled):
        raise BermoError(f"{path} has no text that is not empty.")
    rows = _with_labels(filled, columns, trained)
    return Answered(rows=rows, num_empty=len(table) - len(filled), notes=filled.notes)


def _with_labels(table: Table, columns: Columns, trained: TrainedTask) -> TextRows | ChoiceRows:
    """Return the rows of a table with their labels in the form of the task."""
    if trained.task.kind == "choice":
        return choice_rows(table, columns.text, columns.label)
    if trained.task.kind == "multi-label":
        cells = label_cells(table, str(columns.label))
        labels = read_labels(cells, trained.label_separator, trained.labels)
        return replace(text_rows(table, columns.text, None), labels=labels)
    rows = text_rows(table, columns.text, columns.label)
    if trained.task.kind == "reranker":
        return relevance(rows, table.path, table.place)
    return numbers(rows, table.path, table.place) if trained.task.kind == "regression" else rows


def _known_columns(
    table: Table, trained: TrainedTask, text: Sequence[str], label: str | None
) -> tuple[Sequence[str] | None, str | None]:
    if not text and all(map(table.has, trained.text)):
        text = trained.text
    if label is None and trained.label is not None and table.has(trained.label):
        label = trained.label
    return text or None, label


def _table(path: Path, trained: TrainedTask, separator: str | None) -> Table:
    """Read a named task's file with the header that its official form lacks."""
    sources = [item for item in trained.task.valid if Path(item.name).name == path.name]
    header = sources[0].header if sources else None
    drops_extra = bool(sources and sources[0].drops_extra)
    return read_table(path, header, drops_extra=drops_extra, separator=separator)


def unknown_labels(rows: Rows, trained: TrainedTask) -> Counter[str]:
    """Count the labels of rows that the model cannot give."""
    known = set(trained.labels)
    return Counter(name for name in label_names(rows) if name not in known) if known else Counter()


def check_labels(rows: Rows, trained: TrainedTask, path: Path, hint: str = "") -> None:
    """Refuse a label that the model does not know; `hint` says what else can be done."""
    unknown = unknown_labels(rows, trained)
    if unknown:
        name, times = unknown.most_common(1)[0]
        raise BermoError(
            f'{path} has the label "{shortened(name)}" ({number_of(times, "time")}), which the model does not'
            f" know.{nearest(name, trained.labels)}{hint}"
        )
