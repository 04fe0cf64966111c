"""A trained model's answers to texts in memory, as small frozen objects."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bermo.choices import Device
from bermo.data.inputs import line_names
from bermo.data.tasks import Kind
from bermo.estimators.inputs import unlabelled
from bermo.estimators.trained import as_arguments, trained_folder, without_bars
from bermo.fields import check
from bermo.runs.trained import open_trained
from bermo.ship.runtimes.predict import WITHOUT_CLASSES, Predictor, predict_stream
from bermo.ship.runtimes.spec import PredictSpec
from bermo.spec import Precision
from bermo.values import from_texts


@dataclass(frozen=True, kw_only=True)
class LabelAnswer:
    """The likeliest class of a text, its probability, and that of every class."""

    label: str | None
    probability: float | None
    probabilities: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class LabelsAnswer:
    """The labels that a text has, which may be none, their probabilities, and that of every label."""

    labels: list[str] | None
    probability: list[float] | None
    probabilities: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class NumberAnswer:
    """The number of a text."""

    value: float | None


@dataclass(frozen=True, kw_only=True)
class TagsAnswer:
    """The words of a text, the tag of each and its probability."""

    words: list[str]
    tags: list[str]
    probability: list[float | None]


@dataclass(frozen=True, kw_only=True)
class SpanAnswer:
    """The answer to a question; an id where the rows had one."""

    answer: str | None
    id: str | None = None


@dataclass(frozen=True, kw_only=True)
class ChoiceAnswer:
    """The number of the likeliest ending, its probability, and that of every ending."""

    choice: int | None
    probability: float | None
    probabilities: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class VectorAnswer:
    """The vector of a text."""

    vector: list[float] | None


@dataclass(frozen=True, kw_only=True)
class ScoreAnswer:
    """How well the second text of a pair answers the first, 0 to 1."""

    score: float | None


Answer = (
    LabelAnswer
    | LabelsAnswer
    | NumberAnswer
    | TagsAnswer
    | SpanAnswer
    | ChoiceAnswer
    | VectorAnswer
    | ScoreAnswer
)
ANSWERS: dict[Kind, type[Answer]] = {
    "classification": LabelAnswer,
    "multi-label": LabelsAnswer,
    "regression": NumberAnswer,
    "tagging": TagsAnswer,
    "span": SpanAnswer,
    "choice": ChoiceAnswer,
    "embedding": VectorAnswer,
    "reranker": ScoreAnswer,
}


def predict(
    folder: str | Path,
    texts: Any,
    *,
    batch_size: int = 64,
    device: Device = "auto",
    precision: Precision | None = None,
) -> list[Answer]:
    """Return the answers of a trained model, in the folder of a run, of a model or of an export, to texts.

    Texts are a list, an array or a series, or have columns: a frame, a `datasets.Dataset`, a dict. A model
    that reads several texts a row takes tuples: a pair, or a question and its context. An empty text has an
    empty answer. `precision` is that of a torch model's arithmetic: bf16 and fp16 are for GPUs.
    `bermo.Classifier.load(folder)` keeps the model open for many calls.

        >>> [answer.label for answer in bermo.predict(classifier.folder_, ["a good film"])]  # as fitted there
        ['yes']
    """
    given = {"batch_size": str(batch_size), "device": device}
    given |= {} if precision is None else {"precision": precision}
    with as_arguments():
        asked = check(from_texts(PredictSpec, given))
    opened = open_trained(trained_folder(folder))
    trained = opened.trained
    names, is_tagger = line_names(trained.task, trained.text), trained.task.kind == "tagging"
    table = unlabelled(texts, "texts", names, takes_words=is_tagger).table()
    with without_bars():
        predictor = Predictor(opened, asked.device, asked.batch_size, asked.precision)
    kind, has_classes = ANSWERS[trained.task.kind], trained.task.kind not in WITHOUT_CLASSES
    answers: list[Answer] = []
    predict_stream(
        predictor,
        [table],
        replace(asked, probabilities=has_classes),
        lambda answer: answers.append(kind(**answer)),
    )
    return answers
