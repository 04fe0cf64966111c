"""A model that is served: which rows it reads, and the answers to those of many requests at once."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from bermo.data.inputs import filled_rows, input_rows, line_names
from bermo.data.rows import ApartRows
from bermo.data.scoring import empty_answer
from bermo.data.table import Table
from bermo.encoders.sentence import SentenceSettings
from bermo.runs.trained import TrainedFolder, open_any
from bermo.ship.runtimes.embed import cut_vectors
from bermo.ship.runtimes.predict import WITHOUT_CLASSES, Predictor
from bermo.ship.serve.address import served_name
from bermo.ship.serve.asked import Asked
from bermo.ship.serve.refused import Refused
from bermo.ship.serve.spec import ServeSpec

REQUEST = Path("the request")
RERANKED = ("query", "text")
WORDS = "a good text"
"""What a model is asked before the first request, so that no client waits for what is made only once."""


@dataclass(frozen=True, kw_only=True)
class About:
    """What /models tells of a model."""

    name: str
    kind: str
    reads: tuple[str, ...]
    labels: tuple[str, ...]
    runtime: str
    precision: str
    dimension: int | None = None
    prompts: tuple[str, ...] = ()


class ServedModel:
    """A folder's model, loaded once, which `num_workers` threads may ask at a time.

    onnxruntime computes one batch in each thread, so that none waits for another within a batch; torch and
    OpenVINO compute one batch at a time in all threads.
    """

    def __init__(self, folder: Path, spec: ServeSpec) -> None:
        self.opened = open_any(folder)
        is_shared = self.opened.runtime == "onnxruntime"
        self.num_workers = spec.num_threads if is_shared else 1
        threads = 1 if is_shared else spec.num_threads
        first = Predictor(self.opened, spec.device, spec.batch_size, threads=threads)
        self.predictors: SimpleQueue[Predictor] = SimpleQueue()
        for predictor in (first, *(first.twin() for _ in range(1, self.num_workers))):
            self.predictors.put(predictor)
        self.sentence = self.opened.sentence if self.gives_vectors else SentenceSettings()
        self.reads = _reads(self.opened)
        self.width = self._warm_up()
        self.about = self._about(served_name(folder))

    @property
    def kind(self) -> str:
        """The kind of task that the model was trained for."""
        return self.opened.trained.task.kind

    @property
    def gives_vectors(self) -> bool:
        """Whether the model is a sentence encoder."""
        return self.kind == "embedding"

    def check(self, asked: Asked) -> None:
        """Refuse what this model cannot answer, before the request waits for it."""
        if self.gives_vectors:
            self._check_vectors(asked)
        else:
            self._check_answers(asked)
        for index, row in enumerate(asked.rows, start=1):
            if len(row) != len(self.reads) and self.kind != "tagging":
                raise Refused(
                    400,
                    f"Text {index} has {len(row)} parts, but the model reads {len(self.reads)}"
                    f" ({', '.join(self.reads)}). Send each as {_form(self.reads)}.",
                )

    def _check_vectors(self, asked: Asked) -> None:
        if asked.probabilities:
            raise Refused(400, "The model gives vectors, no probabilities. Leave the field out.")
        if asked.dimension is not None and asked.dimension > self.width:
            raise Refused(
                400, f'"dimension" must be at most {self.width}, the units of this model\'s vectors.'
            )
        if asked.prompt is not None and asked.prompt not in self.sentence.prompts:
            known = ", ".join(f'"{name}"' for name in self.sentence.prompts) or "none"
            raise Refused(400, f"The model has no such prompt. Known: {known}.")

    def _check_answers(self, asked: Asked) -> None:
        if asked.prompt is not None or asked.dimension is not None:
            raise Refused(400, '"prompt" and "dimension" are for vectors. This model gives answers.')
        if asked.probabilities and self.kind in WITHOUT_CLASSES:
            raise Refused(
                400, f'The model answers with {WITHOUT_CLASSES[self.kind]}. Leave "probabilities" out.'
            )

    def answer(self, requests: Sequence[Asked]) -> list[list[Any]]:
        """Return for each request one answer a row: a vector, or what `bermo predict` prints."""
        predictor = self.predictors.get()
        try:
            found = (self._vectors if self.gives_vectors else self._answers)(predictor, requests)
            return [list(islice(found, len(asked))) for asked in requests]
        finally:
            self.predictors.put(predictor)

    def _vectors(self, predictor: Predictor, requests: Sequence[Asked]) -> Iterator[list[float]]:
        prompts = [self.sentence.prompt(asked.prompt) for asked in requests]
        pairs = zip(requests, prompts, strict=True)
        rows = ApartRows([(prompt + row[0],) for asked, prompt in pairs for row in asked.rows])
        vectors, start = np.stack(predictor.logits(rows)).astype(np.float32), 0
        for asked in requests:
            part = vectors[start : start + len(asked)]
            start += len(asked)
            yield from cut_vectors(part, asked.dimension, self.sentence.normalise).tolist()

    def _answers(self, predictor: Predictor, requests: Sequence[Asked]) -> Iterator[dict[str, Any]]:
        trained, table = self.opened.trained, self._table(requests)
        filled, gives_all = filled_rows(table, self.reads), any(asked.probabilities for asked in requests)
        given: dict[int, dict[str, Any]] = {}
        if filled:
            rows = input_rows(table.pick(filled), trained.task, self.reads)
            given = dict(zip(filled, predictor.answers(rows, gives_all), strict=True))
        wanted = (asked.probabilities for asked in requests for _ in asked.rows)
        for row, wants_all in enumerate(wanted):
            answer = given.get(row) or empty_answer(trained.task, trained.labels, gives_all)
            yield answer if wants_all else self._short(answer)

    def _short(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Leave out what only a request for probabilities asks for."""
        extra = "probability" if self.kind == "tagging" else "probabilities"
        return {name: value for name, value in answer.items() if name != extra}

    def _table(self, requests: Sequence[Asked]) -> Table:
        rows = [row for asked in requests for row in asked.rows]
        if self.kind == "tagging":  # a list is one of words, which stand in a cell as JSON
            rows = [row if len(row) == 1 else (json.dumps(row),) for row in rows]
        columns = [list(column) for column in zip(*rows, strict=True)]
        named = dict(zip(self.reads, columns, strict=True))
        return Table(REQUEST, named, list(range(1, len(rows) + 1)), is_in_memory=True)

    def _warm_up(self) -> int:
        """Answer one row, and return how many units a vector has."""
        (answers,) = self.answer([Asked(rows=((WORDS,) * len(self.reads),))])
        return len(answers[0]) if self.gives_vectors else 0

    def _about(self, name: str) -> About:
        return About(
            name=name,
            kind=self.kind,
            reads=self.reads,
            labels=self.opened.trained.labels,
            runtime=self.opened.runtime,
            precision=self.opened.precision,
            dimension=self.width or None,
            prompts=tuple(self.sentence.prompts),
        )


def _reads(opened: TrainedFolder) -> tuple[str, ...]:
    """Name the texts of a row, in their order."""
    trained = opened.trained
    if trained.task.kind == "reranker" and not trained.text:
        return RERANKED
    return line_names(trained.task, trained.text)[: 1 if trained.task.kind == "embedding" else None]


def _form(reads: Sequence[str]) -> str:
    return "a string" if len(reads) == 1 else f"[{', '.join(json.dumps(name) for name in reads)}]"
