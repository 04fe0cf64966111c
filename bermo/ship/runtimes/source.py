"""A run's or a model's folder -> the trained model in it, its tokenizer and its task; every mistake gets its sentence."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from transformers import AutoConfig, PreTrainedTokenizerBase
from transformers.utils import logging

from bermo.data.tasks import OWN
from bermo.encoders.backbone import load_tokenizer
from bermo.errors import BermoError
from bermo.methods.predict import LOADERS, Trained, read_trained
from bermo.models.encoder import BermoConfig, BermoPreTrainedModel
from bermo.runs.folder import LOCK
from bermo.spec import DataSpec, RunSpec
from bermo.values import from_dict


@dataclass(frozen=True)
class Source:
    """A trained model, where it was found, and what it was trained for and on."""

    folder: Path
    model: BermoPreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    trained: Trained
    data: DataSpec | None
    """The data of the run, where the folder is a run's."""


def load_source(path: Path) -> Source:
    """Load the model of a finished run, or of a model's folder, in eval mode."""
    folder = _model_folder(path)
    _check_config(folder)
    trained = read_trained(folder)
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        model = LOADERS[trained.task.kind].from_pretrained(folder, dtype=torch.float32)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise BermoError(f"The model in {folder} could not be loaded: {reason}") from error
    finally:
        logging.set_verbosity(level)
    return Source(folder, model.eval(), load_tokenizer(folder), trained, _data_of(path))


def check_out(out: Path) -> None:
    """Refuse a folder that holds something, before any work starts."""
    if out.is_file():
        raise BermoError(f"{out} is a file. Give a folder that is new or empty with --out.")
    if out.is_dir() and {item.name for item in out.iterdir()} - {LOCK}:
        raise BermoError(
            f"{out} is not empty, and nothing there is overwritten. Give another folder with --out."
        )


def _model_folder(path: Path) -> Path:
    if not path.is_dir():
        raise BermoError(f"There is no folder {path}. Give the folder of a finished run.")
    if (path / "model").is_dir():
        return path / "model"
    if (path / "spec.json").exists():
        raise BermoError(f"The run in {path} is not finished: it has no model yet.")
    if not (path / "config.json").exists():
        raise BermoError(
            f"{path} holds no model: there is no config.json. Give the folder of a finished run, or the"
            " model folder inside it."
        )
    return path


def _check_config(folder: Path) -> None:
    try:
        config = AutoConfig.from_pretrained(folder)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise BermoError(f"The config in {folder} could not be read: {reason}") from error
    if not isinstance(config, BermoConfig):
        raise BermoError(
            f"{folder} holds a {config.model_type} model, not one that bermo trained. Train it first:"
            f" bermo train --model {folder} …"
        )


def _data_of(path: Path) -> DataSpec | None:
    spec = path / "spec.json"
    if not spec.exists():
        return None
    try:
        return from_dict(RunSpec, json.loads(spec.read_text(encoding="utf-8"))["spec"]).data
    except (ValueError, KeyError, TypeError):
        raise BermoError(f"{spec} cannot be read. Give the model folder inside the run.") from None


def with_files(
    data: DataSpec, kind: str, folder: str | None, train: str | None, valid: str | None
) -> DataSpec:
    """Return a run's data with what the user named; own files take the place of a named task's folder."""
    given = {"folder": folder, "train": train, "valid": valid}
    found = replace(data, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
    if folder is None and (train or valid) and data.task not in OWN:
        return replace(found, task=f"own/{kind}", folder=None)
    return found
