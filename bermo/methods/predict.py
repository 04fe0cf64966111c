"""A trained model and a file of texts -> answers, one JSON line a row.

The model's folder says what it was trained for in task.json, so it can be moved and used alone.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
from torch import nn

from bermo.data.features import Features, make_features
from bermo.data.load import read_inputs
from bermo.data.scoring import decode
from bermo.errors import BermoError
from bermo.files import write_text
from bermo.methods.evaluate import predict
from bermo.progress import Display
from bermo.runs.trained import TrainedFolder, open_trained
from bermo.spec import DataSpec, TrainSpec
from bermo.training.devices import make_accelerator

Advance = Callable[[int], None]
Ask = Callable[[Features, int, Advance], list[np.ndarray]]
Opener = Callable[[TrainedFolder], Ask]


def _open_torch(opened: TrainedFolder) -> Ask:
    accelerator = make_accelerator(TrainSpec(), opened.folder)
    model = cast(nn.Module, opened.load_model()).to(accelerator.device)

    def ask(features: Features, batch_size: int, advance: Advance) -> list[np.ndarray]:
        return predict(model, features, batch_size, accelerator, advance)

    return ask


def predict_file(
    run: Path,
    file: Path,
    out: Path | None,
    batch_size: int,
    display: Display,
    open_export: Opener | None = None,
) -> None:
    """Answer every row of `file` with the model of `run`; print JSON lines, or write them to `out`.

    `open_export` opens a folder that holds an export in place of a torch model.
    """
    if out is not None and out.exists():
        raise BermoError(f"{out} exists and is not overwritten. Give another name with --out.")
    opened = open_trained(run)
    trained = opened.trained
    rows = read_inputs(file, trained.task, trained.text)
    # One short text with one odd word is a question like any other, so unknown tokens are no error here.
    limits = DataSpec(max_length=trained.max_length, stride=trained.stride, max_unknown=1.0)
    # The arrays stay mapped after the files are gone.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        features = make_features(
            rows,
            trained.task,
            trained.labels,
            opened.load_tokenizer(),
            replace(limits, cache=cache),
            opened.has_segments,
        )
    ask = open_export(opened) if open_export and opened.is_export else _open_torch(opened)
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
