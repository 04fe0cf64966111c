"""Texts without labels that a teacher answers, and the training rows with them as one set of features.

    one text a line (.txt), or a table with the text column(s) of training; other columns are not read
    labelled features, then those without labels: ids end to end, starts shifted

A row without a label has a target like any other, 0, which no loss may read (methods/unlabelled.py); of tags
the first pieces of words have it, so that they count as the tokens on which the teacher is asked.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bermo.data.columns import OF_TRAINING
from bermo.data.corpora import without_empty
from bermo.data.features import Features, TokenFacts
from bermo.data.inputs import input_names, input_rows, text_blocks
from bermo.data.rows import Rows, TextRows
from bermo.data.table import Table
from bermo.data.tasks import Kind, TaskData
from bermo.data.tokens import IGNORED
from bermo.errors import BermoError

KINDS: tuple[Kind, ...] = ("classification", "multi-label", "regression", "reranker", "tagging")
"""Kinds of task whose rows can be without a label."""
EVERY_ROW = 2**31


def read_unlabelled(
    path: Path, data: TaskData, text: Sequence[str] | None = None, separator: str | None = None
) -> Rows:
    """Return the texts of a file as rows of the task, without labels; `text` names the columns."""
    kind = data.task.kind
    if kind not in KINDS:
        more = ": there texts alone are the training file (--train)" if kind == "embedding" else ""
        raise BermoError(
            f"--unlabelled adds texts to rows with labels, which {data.task.name} ({kind}) does not have"
            f"{more}. It is for {', '.join(KINDS)}. Leave it out."
        )
    table = _read(path, data, separator)
    names = input_names(table, data.task, data.text, text or (), OF_TRAINING)
    table = without_empty(table, names)
    if not len(table):
        raise BermoError(f"{path} has no text that is not empty.")
    if isinstance(data.train, TextRows):
        wanted = 1 if data.train.second is None else 2
        if len(names) != wanted:
            raise BermoError(
                f"{path} must have {wanted} column(s) of texts, as the training rows have, but got"
                f" {len(names)}: {', '.join(names)}. Name them with --text."
            )
    return input_rows(table, data.task, names)


def _read(path: Path, data: TaskData, separator: str | None) -> Table:
    has_pairs = isinstance(data.train, TextRows) and data.train.second is not None
    text = data.text or ("text1", "text2") if has_pairs else data.text[:1]
    for table in text_blocks(path, data.task, text, EVERY_ROW, separator, data.labels):
        return replace(table, path=path)
    raise BermoError(f"{path} is empty.")


def join_features(labelled: Features, bare: Features) -> Features:
    """Return both as one, the labelled rows first; what has no label has the target 0."""
    names = ("ids", "segments", "words")
    arrays: dict[str, Any] = {
        name: _end_to_end(getattr(labelled, name), getattr(bare, name)) for name in names
    }
    return replace(
        labelled,
        **arrays,
        rows=_join_rows(labelled.rows, bare.rows),
        facts=_join_facts(labelled, bare),
        starts=np.concatenate([labelled.starts, labelled.starts[-1] + bare.starts[1:]]),
        targets=_end_to_end(labelled.targets, _no_targets(labelled, bare)),
    )


def _end_to_end(first: npt.NDArray[Any] | None, second: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
    return None if first is None or second is None else np.concatenate([first, second])


def _no_targets(labelled: Features, bare: Features) -> npt.NDArray[Any]:
    targets = np.asarray(labelled.targets)
    if labelled.task.kind == "tagging":
        return np.where(np.asarray(bare.words) >= 0, 0, IGNORED).astype(targets.dtype)
    return np.zeros((len(bare), *targets.shape[1:]), dtype=targets.dtype)


def _join_rows(labelled: Rows, bare: Rows) -> Rows:
    """Return all rows, without the labels that only some have."""
    columns = {item.name: (getattr(labelled, item.name), getattr(bare, item.name)) for item in fields(bare)}
    joined: dict[str, Any] = {
        name: None if None in pair else [*pair[0], *pair[1]] for name, pair in columns.items()
    }
    return replace(bare, **joined)


def _join_facts(labelled: Features, bare: Features) -> TokenFacts:
    sides = (labelled, bare)
    num_tokens = sum(side.facts.num_tokens for side in sides)
    num_rows = sum(map(len, sides))
    return TokenFacts(
        unknown_share=sum(side.unknown_share * side.facts.num_tokens for side in sides) / max(num_tokens, 1),
        truncated_share=sum(side.truncated_share * len(side) for side in sides) / num_rows,
        lost_words=sum(side.facts.lost_words for side in sides),
        num_tokens=num_tokens,
    )
