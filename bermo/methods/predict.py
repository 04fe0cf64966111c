"""A trained model and a file of texts -> answers, one JSON line a row.

The model's folder says what it was trained for in task.json, so it can be moved and used alone.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from bermo.data.features import Features, make_features
from bermo.data.load import TaskData, own_task, read_inputs
from bermo.data.scoring import decode
from bermo.data.tasks import TASKS, Kind, Task
from bermo.encoders.backbone import load_tokenizer
from bermo.errors import BermoError
from bermo.files import write_json, write_text
from bermo.methods.evaluate import predict
from bermo.models.tasks import has_segments
from bermo.progress import Display
from bermo.spec import DataSpec, TrainSpec
from bermo.training.devices import make_accelerator

LOADERS: Mapping[Kind, Any] = {
    "classification": AutoModelForSequenceClassification,
    "regression": AutoModelForSequenceClassification,
    "tagging": AutoModelForTokenClassification,
    "span": AutoModelForQuestionAnswering,
    "choice": AutoModelForMultipleChoice,
}

Advance = Callable[[int], None]
Ask = Callable[[Features, int, Advance], list[np.ndarray]]


@dataclass(frozen=True)
class Trained:
    """What a model folder says about its training: the task, its columns and its limits."""

    task: Task
    labels: tuple[str, ...]
    text: tuple[str, ...]
    max_length: int
    stride: int


Opener = Callable[[Path, Trained], Ask]


def write_trained(folder: Path, data: TaskData, spec: DataSpec) -> None:
    """Write task.json beside a model."""
    write_json(
        folder / "task.json",
        {
            "task": data.task.name,
            "kind": data.task.kind,
            "labels": data.labels,
            "text": data.text,
            "max_length": spec.max_length,
            "stride": spec.stride,
        },
    )


def read_trained(folder: Path) -> Trained:
    """Read task.json of a model's folder."""
    path = folder / "task.json"
    if not path.exists():
        raise BermoError(
            f"{folder} holds no model that bermo trained (there is no task.json). Give the folder of a "
            "finished run, or the model folder inside it."
        )
    values = json.loads(path.read_text(encoding="utf-8"))
    task = TASKS.get(values["task"]) or own_task(values["kind"])
    return Trained(
        task, tuple(values["labels"]), tuple(values["text"]), values["max_length"], values["stride"]
    )


def _open_torch(folder: Path, trained: Trained) -> Ask:
    accelerator = make_accelerator(TrainSpec(), folder)
    model = LOADERS[trained.task.kind].from_pretrained(folder).to(accelerator.device)

    def ask(features: Features, batch_size: int, advance: Advance) -> list[np.ndarray]:
        return predict(model, features, batch_size, accelerator, advance)

    return ask


def predict_file(
    run: Path,
    file: Path,
    out: Path | None,
    batch_size: int,
    display: Display,
    open_model: Opener | None = None,
) -> None:
    """Answer every row of `file` with the model of `run`; print JSON lines, or write them to `out`.

    `open_model` says how to load a folder that holds something else than a torch model.
    """
    if out is not None and out.exists():
        raise BermoError(f"{out} exists and is not overwritten. Give another name with --out.")
    if not run.is_dir():
        raise BermoError(f"There is no folder {run}. Give the folder of a finished run.")
    folder = run / "model" if (run / "model").is_dir() else run
    if folder == run and (run / "spec.json").exists():
        raise BermoError(f"The run in {run} is not finished: it has no model yet.")
    trained = read_trained(folder)
    rows = read_inputs(file, trained.task, trained.text)
    tokenizer = load_tokenizer(str(folder))
    # One short text with one odd word is a question like any other, so unknown tokens are no error here.
    limits = DataSpec(max_length=trained.max_length, stride=trained.stride, max_unknown=1.0)
    with tempfile.TemporaryDirectory() as cache:
        features = make_features(
            rows,
            trained.task,
            trained.labels,
            tokenizer,
            replace(limits, cache=cache),
            has_segments(folder),
        )  # the arrays stay mapped after the files are gone
    ask = (open_model or _open_torch)(folder, trained)
    done = 0
    display.start("predicting", len(features), 0)

    def advance(num_rows: int) -> None:
        nonlocal done
        done += num_rows
        display.step(done, None)

    try:
        predictions = ask(features, batch_size, advance)
    finally:
        display.close()
    text = "".join(json.dumps(answer, ensure_ascii=False) + "\n" for answer in decode(features, predictions))
    if out is None:
        sys.stdout.write(text)
    else:
        write_text(out, text)
