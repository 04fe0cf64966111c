"""A trained model of any form and a test file with answers -> all its scores on that file.

    evaluate_file("runs/mine", "test.csv", EvaluateSpec()) -> Evaluated

A label of the file that the model was never taught is an error, since most often it is another spelling of a
known one; with `unknown="wrong"` its rows count as wrong answers. Rows without a text are left out and
counted.
"""

from dataclasses import asdict, dataclass
from pathlib import Path

from bermo.data.evaluation import Evaluation, evaluate
from bermo.data.rows import digest
from bermo.files import write_json
from bermo.machine import processor
from bermo.methods.measure import versions
from bermo.progress import Display, Quiet, counted
from bermo.runs.model_files import warn_diverged
from bermo.runs.trained import Runtime, open_trained
from bermo.ship.runtimes.candidate import answer, choose_device, open_candidate
from bermo.ship.runtimes.spec import EvaluateSpec
from bermo.ship.runtimes.texts import check_labels, features_of, read_answered, unknown_labels
from bermo.spec import separator_character

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


def evaluate_file(run: Path, file: Path, spec: EvaluateSpec, display: Display | None = None) -> Evaluated:
    """Let the model of a run, a model's folder or an export answer every row of a file, and score it."""
    display = display or Quiet()
    opened = open_trained(run)
    warn_diverged(run, display.tell)
    separator = separator_character(spec.separator)
    read = read_answered(file, opened.trained, spec.text or (), spec.label, separator)
    rows = read.rows
    for note in read.notes:
        display.tell(note)
    if spec.unknown == "error":
        check_labels(rows, opened.trained, file, HINT)
    unknown = unknown_labels(rows, opened.trained)
    features = features_of(opened, rows, sorted(unknown))
    candidate = open_candidate(opened, device=choose_device(opened, spec.device), precision=spec.precision)
    with counted(display, "evaluating", len(features)) as advance:
        predictions = answer(candidate, features, spec.batch_size, advance)
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
    )


def write_evaluation(path: Path, evaluated: Evaluated) -> None:
    """Write an evaluation as JSON, whole or not at all."""
    values = asdict(evaluated)
    result = values.pop("result")
    write_json(path, values | result | {"versions": versions(), "processor": processor().name})
