"""A training on rows in memory, and a trained model that is asked texts in memory."""

import re
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from transformers.utils import logging

from bermo.choices import Device
from bermo.data.columns import NO_FLAGS, find_columns
from bermo.data.corpora import find_empty, label_cells, label_column, numbers
from bermo.data.inputs import input_names, input_rows, line_names
from bermo.data.label_lists import read_labels
from bermo.data.load import task_of_tables
from bermo.data.own_metric import own_metric
from bermo.data.rows import TextRows
from bermo.data.tasks import Kind, built_in, scored_by
from bermo.errors import BermoError
from bermo.estimators.inputs import LABEL, Columns, check_folder, labelled, unlabelled
from bermo.estimators.options import Options
from bermo.files import copy_folder, read_sealed, whole_folder, write_sealed
from bermo.methods.finetune import finetune
from bermo.progress import Quiet
from bermo.report.terminal import TerminalDisplay
from bermo.runs.model_files import ESTIMATOR_FILE, divergence, warn_diverged
from bermo.runs.results import RunResult
from bermo.runs.trained import open_trained
from bermo.ship.runtimes.predict import Predictor
from bermo.spec import RunSpec, replace_in
from bermo.training.job import Stopped

PLAIN = (str, int, float, bool, type(None))


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a training left: the run's folder and result, and the classes as they were given."""

    folder: Path
    is_temporary: bool
    result: RunResult
    classes: list[Any]


@dataclass(frozen=True)
class Saved:
    """What stands beside a saved model: the options of its estimator, and the classes as they were given."""

    options: dict[str, Any]
    classes: list[Any]


def train_rows(options: Options, texts: Any, labels: Any, valid: Any) -> Trained:
    """Train on rows in memory, in the folder `out` or in a temporary one."""
    train, out = labelled(texts, labels, "training rows"), options.given["out"]
    other = None if valid is None else _valid(valid).table()
    with as_arguments():
        spec = _with_kind(options.spec, train)
        data = task_of_tables(spec.data, train.table(), other)
    for doubt in data.doubts:
        warnings.warn(_as_argument(doubt), stacklevel=3)
    data = replace(data, doubts=())
    own = train.labels(str(data.label)) if data.labels else {}
    if callable(metric := options.given.get("metric")):
        data = scored_by(data, replace(own_metric(metric), classes=own))
    folder = check_folder(out) if out else Path(tempfile.mkdtemp(prefix="bermo-"))
    try:
        with without_bars(), as_arguments():
            result = finetune(spec, folder, TerminalDisplay() if options.given["verbose"] else Quiet(), data)
    except BaseException as error:
        if out is None:
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, Stopped):
            raise KeyboardInterrupt(str(error)) from None
        raise
    for seed in result.seeds:
        if seed.verdict != "fine":
            warnings.warn(f"Seed {seed.seed} {seed.verdict}.", stacklevel=3)
    classes = [own.get(name, name) for name in data.labels]
    return Trained(folder=folder, is_temporary=out is None, result=result, classes=classes)


@contextmanager
def without_bars() -> Iterator[None]:
    """Keep transformers' own bars off the screen while a model is loaded or written."""
    is_shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if is_shown:
            logging.enable_progress_bar()


@contextmanager
def as_arguments() -> Iterator[None]:
    """Name options in errors as Python does, --max-length as max_length, but for those of a command."""
    try:
        yield
    except BermoError as error:
        if re.search(r"\bbermo [a-z]", str(error)):
            raise
        raise BermoError(_as_argument(str(error))) from None


def _as_argument(sentence: str) -> str:
    return re.sub(r"--([a-z][a-z-]*)", lambda flag: flag[1].replace("-", "_"), sentence)


def _with_kind(spec: RunSpec, train: Columns) -> RunSpec:
    """Return the spec of a task with several labels a row where the rows have lists of labels."""
    if spec.data.task != "own/classification":
        return spec
    label = find_columns(train.table(), spec.data.text, spec.data.label).label
    if spec.data.label_separator is None and not train.has_several(str(label)):
        return spec
    return replace_in(spec, data={"task": "own/multi-label"})


def trained_folder(folder: Any) -> Path:
    """Return the path of a trained model; of a training that diverged it warns."""
    path = check_folder(folder)
    warn_diverged(path, lambda sentence: warnings.warn(sentence, stacklevel=5))
    return path


def _valid(valid: Any) -> Columns:
    is_pair = isinstance(valid, tuple | list) and len(valid) == 2
    texts, labels = valid if is_pair else (valid, None)
    return labelled(texts, labels, "validation rows")


class AskedModel:
    """A trained model that is loaded once and asked texts in memory; a temporary folder goes with it."""

    def __init__(
        self, folder: Path, kinds: Sequence[Kind], device: Device, is_temporary: bool = False
    ) -> None:
        if is_temporary:
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        with without_bars():
            self._open(folder, kinds, device)

    def _open(self, folder: Path, kinds: Sequence[Kind], device: Device) -> None:
        opened = open_trained(folder)
        if opened.trained.task.kind not in kinds:
            raise BermoError(f"{folder} holds a model for {opened.trained.task.kind}, not for {kinds[0]}.")
        self.opened, self.predictor = opened, Predictor(opened, device)

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes as texts."""
        return self.opened.trained.labels

    def ask(self, texts: Any) -> list[dict[str, Any]]:
        """Return the answer to each text, with all its probabilities."""
        trained = self.opened.trained
        table = unlabelled(texts, "texts", line_names(trained.task, trained.text)).table()
        names = input_names(table, trained.task, trained.text, flags=NO_FLAGS)
        empty = find_empty(table, names)
        if empty:
            raise BermoError(f"texts[{empty[0]}] is empty. Leave the row out.")
        rows = input_rows(table, trained.task, names)
        return self.predictor.answers(rows, gives_all=True)

    @property
    def has_several(self) -> bool:
        """Whether a text has any number of labels."""
        return self.opened.trained.task.kind == "multi-label"

    def names_in(self, texts: Any, labels: Any) -> list[frozenset[str]]:
        """Return the labels of each text as a file would hold them, from `labels` or a column of `texts`."""
        found = labelled(texts, labels, "texts")
        table, trained, name = found.table(), self.opened.trained, LABEL
        if labels is None:
            known = trained.label if trained.label is not None and table.has(trained.label) else None
            name = str(find_columns(table, None, known, flags=NO_FLAGS).label)
        if not self.has_several:
            return [frozenset((label,)) for label in label_column(table, name)]
        rows = read_labels(label_cells(table, name), trained.label_separator, trained.labels)
        return list(map(frozenset, rows))

    def numbers_in(self, texts: Any, labels: Any) -> list[float]:
        """Return the numbers of texts, from `labels` or from a column of `texts`."""
        cells = [str(*names) for names in self.names_in(texts, labels)]
        return [float(number) for number in numbers(TextRows(cells, labels=cells), "labels").labels or ()]  # type: ignore[arg-type]

    def mix_weights(self) -> npt.NDArray[np.float64] | None:
        """Return the share of each layer in the mix; an export does not say it."""
        mix = getattr(getattr(self.predictor.candidate, "model", None), "mix", None)
        return None if mix is None else np.array(mix.weights.tolist())

    def save(self, folder: str | Path, options: Mapping[str, Any], classes: list[Any]) -> None:
        """Copy the model into a new folder, with the options of its estimator and the classes."""
        folder = check_folder(folder)
        if folder.exists() and (folder.is_file() or any(folder.iterdir())):
            raise BermoError(f"{folder} exists and is not overwritten. Give another folder.")
        with whole_folder(folder) as temporary:
            copy_folder(self.opened.folder, temporary)
            known = {name: _plain(value) for name, value in options.items() if not callable(value)}
            saved = {"options": known, "classes": [_plain(value) for value in classes]}
            write_sealed(temporary / ESTIMATOR_FILE, saved | {"diverged": divergence(self.opened.folder)})


def check_fitted(asked: AskedModel | None, name: str) -> AskedModel:
    """Return the model of an estimator; one that is not fitted is refused."""
    if asked is None:
        raise BermoError(f"This {name} is not fitted. Call fit first, or {name}.load(folder).")
    return asked


def read_saved(folder: Path) -> Saved:
    """Return the options and classes that `save` wrote, or none for a folder that it did not write."""
    path = folder / ESTIMATOR_FILE
    if not path.is_file():
        return Saved({}, [])
    try:
        values = read_sealed(path)
        options = dict(values["options"])
        if "metric" in options and built_in(options["metric"]) is None:
            # Nothing that a model's folder names is run: a metric of the user's own is given each time.
            del options["metric"]
        return Saved(options, list(values["classes"]))
    except (ValueError, KeyError, TypeError) as error:
        raise BermoError(
            f"{path} is damaged ({error}). Copy the folder anew from where it was saved."
        ) from None


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value if isinstance(value, PLAIN) else str(getattr(value, "folder_", value))
