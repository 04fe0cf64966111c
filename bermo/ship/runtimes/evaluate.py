"""A trained model of any form and a test file with answers -> all its scores on that file.

    evaluate_file("runs/mine", "test.csv", EvaluateSpec()) -> Evaluated

A label of the file that the model was never taught is an error, since most often it is another spelling of a
known one; with `unknown="wrong"` its rows count as wrong answers. Rows without a text are left out and
counted.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from bermo.choices import separator_character
from bermo.data.evaluation import Evaluation, evaluate
from bermo.data.features import Features
from bermo.data.mistakes import Change, answers_of, changes
from bermo.data.own_metric import is_function, read_metric
from bermo.data.rows import Rows, digest
from bermo.data.tasks import with_function, with_metric
from bermo.errors import BermoError
from bermo.files import write_json
from bermo.machine import processor
from bermo.progress import Display, Quiet, counted
from bermo.runs.model_files import warn_diverged
from bermo.runs.trained import Runtime, TrainedFolder, open_trained
from bermo.ship.runtimes.candidate import answer, choose_device, open_candidate
from bermo.ship.runtimes.spec import EvaluateSpec
from bermo.ship.runtimes.texts import check_labels, features_of, read_answered, unknown_labels

HINT = " Correct the file, or count such rows as wrong answers with --unknown wrong."


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """An evaluation, of what and on what; `digest` is the sha256 of the rows."""

    model: str
    runtime: Runtime
    precision: str
    file: str
    digest: str
    labels: tuple[str, ...]
    """The order of the confusion matrix; labels that the model cannot give come last."""
    unknown: dict[str, int]
    """Labels of the file that the model cannot give, and how often they occur."""
    result: Evaluation
    num_empty: int = 0
    """Rows that were left out, since they have no text."""
    change: Change | None = None
    """What differs from the answers of another model, where one was named."""


def evaluate_file(run: Path, file: Path, spec: EvaluateSpec, display: Display | None = None) -> Evaluated:
    """Let the model of a run, a model's folder or an export answer every row of a file, and score it."""
    display = display or Quiet()
    opened = _scored_by(open_trained(run), spec.metric)
    other = None if spec.against is None else _open_other(spec.against, opened)
    for folder in (run, *([] if spec.against is None else [spec.against])):
        warn_diverged(folder, display.tell)
    separator = separator_character(spec.separator)
    read = read_answered(file, opened.trained, spec.text or (), spec.label, separator)
    rows = read.rows
    for note in read.notes:
        display.tell(note)
    if spec.unknown == "error":
        check_labels(rows, opened.trained, file, HINT)
    unknown = unknown_labels(rows, opened.trained)
    features, predictions = _ask(opened, rows, sorted(unknown), spec, display)
    change = None
    if other is not None:
        before = answers_of(*_ask(other, rows, sorted(unknown), spec, display))
        change = changes(features, answers_of(features, predictions), before, str(spec.against))
    return Evaluated(
        model=str(run),
        runtime=opened.runtime,
        precision=spec.precision or opened.precision,
        file=str(file),
        digest=digest(rows),
        labels=features.labels,
        unknown=dict(unknown),
        result=evaluate(features, predictions),
        num_empty=read.num_empty,
        change=change,
    )


def _ask(
    opened: TrainedFolder, rows: Rows, unknown: Sequence[str], spec: EvaluateSpec, display: Display
) -> tuple[Features, list[np.ndarray]]:
    """Return the rows as a model reads them, and its answers."""
    features = features_of(opened, rows, unknown)
    candidate = open_candidate(opened, device=choose_device(opened, spec.device), precision=spec.precision)
    with counted(display, "evaluating", len(features)) as advance:
        return features, answer(candidate, features, spec.batch_size, advance)


def _scored_by(opened: TrainedFolder, metric: str | None) -> TrainedFolder:
    """Return a model with the metric that the user typed, a function of their own perhaps."""
    trained = opened.trained
    if is_function(metric):
        task = with_function(trained.task, read_metric(str(metric)))
    else:
        task = with_metric(trained.task, metric, len(trained.labels))
    return replace(opened, trained=replace(trained, task=task))


def _open_other(folder: Path, opened: TrainedFolder) -> TrainedFolder:
    """Open the model that is compared with, which must give the same classes."""
    other = open_trained(folder)
    own, theirs = opened.trained, other.trained
    if own.task.kind != "classification":
        raise BermoError(
            f"--against compares answers that are right or wrong, but {opened.folder} answers with"
            f" {own.task.kind}. Leave --against out."
        )
    if theirs.task.kind != "classification" or theirs.labels != own.labels:
        raise BermoError(
            f"{folder} answers {', '.join(theirs.labels[:6]) or theirs.task.kind}, but {opened.folder}"
            f" {', '.join(own.labels[:6])}. Compare models of the same classes."
        )
    return other


def write_evaluation(path: Path, evaluated: Evaluated) -> None:
    """Write an evaluation as JSON, whole or not at all."""
    from bermo.methods.measure import versions

    values = asdict(evaluated)
    result = values.pop("result")
    write_json(path, values | result | {"versions": versions(), "processor": processor().name})
