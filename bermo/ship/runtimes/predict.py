"""A trained model of any form and texts -> answers, one for each row and in their order.

    Predictor(open_trained("runs/mine")).answers(rows)                rows in memory
    predict_stream(predictor, blocks, PredictSpec(), write)           a file or standard input of any length

Rows come in blocks: each is tokenised, sorted by length, answered and written before the next is read, so
that memory stays flat. A row without a text has an empty answer.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

from bermo.choices import Device
from bermo.data.features import Features
from bermo.data.inputs import filled_rows, input_names, input_rows
from bermo.data.rows import Rows
from bermo.data.scoring import decode, empty_answer
from bermo.data.table import Table
from bermo.encoders.plain_tokenizer import plain
from bermo.errors import BermoError
from bermo.runs.trained import TrainedFolder
from bermo.ship.runtimes.candidate import answer, choose_device, open_candidate
from bermo.ship.runtimes.spec import PredictSpec
from bermo.ship.runtimes.texts import features_of
from bermo.ship.runtimes.written import Write
from bermo.spec import Precision

WITHOUT_CLASSES: Mapping[str, str] = {
    "regression": "numbers",
    "span": "spans of text",
    "embedding": "vectors",
    "reranker": "scores",
}
"""Kinds of task whose answers are no classes, and what they are."""


class Predictor:
    """A model with its runtime and tokenizer, loaded once."""

    def __init__(
        self,
        opened: TrainedFolder,
        device: Device = "auto",
        batch_size: int = 64,
        precision: Precision | None = None,
        threads: int | None = None,
    ) -> None:
        self.opened, self.batch_size = opened, batch_size
        self.tokenizer = plain(opened.load_reader())
        self.candidate = open_candidate(opened, threads, choose_device(opened, device), precision)

    def twin(self) -> "Predictor":
        """Return the same model for another thread, with a tokenizer of its own, which each use changes."""
        other = copy(self)
        other.tokenizer = deepcopy(self.tokenizer)
        return other

    def logits(self, rows: Rows) -> list[np.ndarray]:
        """Return the logits of each row; none may be empty."""
        return answer(self.candidate, self._features(rows), self.batch_size)

    def answers(self, rows: Rows, gives_all: bool = False) -> list[dict[str, Any]]:
        """Return the answer to each row; none may be empty."""
        features = self._features(rows)
        return decode(features, answer(self.candidate, features, self.batch_size), gives_all)

    def _features(self, rows: Rows) -> Features:
        return features_of(self.opened, rows, tokenizer=self.tokenizer)


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """How many rows were answered, how many of them had no text, and where the first of these is."""

    num_rows: int = 0
    num_empty: int = 0
    first_empty: str = ""

    def after(self, table: Table, filled: Sequence[int]) -> "Predicted":
        """Return the count with the rows of a table added, of which `filled` have a text."""
        empty = len(table) - len(filled)
        first = self.first_empty
        if empty and not first:
            first = table.place(min(set(range(len(table))) - set(filled)))
        return Predicted(
            num_rows=self.num_rows + len(table), num_empty=self.num_empty + empty, first_empty=first
        )


def check_predict(opened: TrainedFolder, spec: PredictSpec) -> None:
    """Refuse what this kind of model cannot answer, before it is loaded."""
    kind = opened.trained.task.kind
    _check_names(spec.id or (), empty_answer(opened.trained.task, opened.trained.labels, gives_all=True))
    given = {"--probabilities": spec.probabilities, "--top": spec.top is not None}
    for flag in (name for name, is_given in given.items() if is_given):
        if kind in WITHOUT_CLASSES:
            what = WITHOUT_CLASSES[kind]
            raise BermoError(f"{opened.folder} answers with {what}, not classes. Leave {flag} out.")
    if spec.truth is not None and kind != "classification":
        raise BermoError(
            f"{opened.folder} is for {kind}, and --truth compares one label a row. Score it with bermo"
            " evaluate."
        )
    if spec.top is not None and kind == "tagging":
        raise BermoError(f"{opened.folder} gives a tag to each word. Leave --top out.")


def predict_stream(
    predictor: Predictor,
    blocks: Iterable[Table],
    spec: PredictSpec,
    write: Write,
    advance: Callable[[int], None] = lambda num_rows: None,
) -> Predicted:
    """Answer tables one after the other, writing each row's answer with the columns asked for beside it."""
    trained, done = predictor.opened.trained, Predicted()
    names: tuple[str, ...] = ()
    for table in blocks:
        names = names or input_names(table, trained.task, trained.text, spec.columns or ())
        filled = filled_rows(table, names)
        found: Iterable[dict[str, Any]] = _answers(predictor, table, names, filled, spec)
        if spec.truth is not None:
            found = _judged(found, table.column(spec.truth))
        for beside, given in zip(_beside(table, predictor, spec, names), found, strict=True):
            _check_names(beside, given)
            write(beside | given)
        done = done.after(table, filled)
        advance(len(table))
    return done


def _answers(
    predictor: Predictor, table: Table, names: Sequence[str], filled: list[int], spec: PredictSpec
) -> Iterator[dict[str, Any]]:
    """Yield an answer for each row of the table; only `filled` ones have a text."""
    trained = predictor.opened.trained
    given: dict[int, dict[str, Any]] = {}
    gives_all = spec.probabilities or spec.top is not None
    if filled:
        rows = input_rows(table.pick(filled), trained.task, names)
        given = dict(zip(filled, predictor.answers(rows, gives_all), strict=True))
    for row in range(len(table)):
        found = given.get(row) or empty_answer(trained.task, trained.labels, gives_all)
        yield found if spec.top is None else _with_top(found, spec.top, spec.probabilities)


def _judged(answers: Iterable[dict[str, Any]], truth: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Say of each answer whether it is the right label; of a row without one, or without a text, nothing."""
    for given, right in zip(answers, truth, strict=True):
        is_known = bool(right.strip()) and given["label"] is not None
        yield given | {"right": given["label"] == right.strip() if is_known else None}


def _with_top(answer: dict[str, Any], count: int, keeps_all: bool) -> dict[str, Any]:
    """Return an answer with the likeliest classes, the likeliest first, beside or in place of all."""
    every: dict[str, float | None] = answer["probabilities"]
    top = sorted((name for name, value in every.items() if value is not None), key=lambda name: -every[name])  # type: ignore[operator]
    found = {name: value for name, value in answer.items() if keeps_all or name != "probabilities"}
    return found | {"top": top[:count], "top_probability": [every[name] for name in top[:count]]}


def _beside(
    table: Table, predictor: Predictor, spec: PredictSpec, names: Sequence[str]
) -> Iterator[dict[str, str]]:
    """Yield what stands beside each answer: the columns asked for, a question's id, and the text."""
    has_ids = predictor.opened.trained.task.kind == "span" and table.has("id")
    ids = spec.id or (("id",) if has_ids else ())
    wanted = dict.fromkeys((*ids, *(names if spec.with_text else ())))
    columns = {name: table.column(name) for name in wanted}
    for row in range(len(table)):
        yield {name: column[row] for name, column in columns.items()}


def _check_names(names: Iterable[str], given: Mapping[str, Any]) -> None:
    for name in names:
        if name in given:
            # Most often they are the right labels, to be looked at beside the answers.
            way = "To see which answers are right, pass --truth label" if name == "label" else "Rename it"
            raise BermoError(
                f'The column "{name}" has the name of a part of the answer. {way}, or leave it out.'
            )
