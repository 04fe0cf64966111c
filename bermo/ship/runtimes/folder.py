"""A model's folder: which runtime it is for, what the model was trained for, how large its files are.

torch         config.json + *.safetensors: a run's model, a plain transformers model with a head, an export in bf16
onnxruntime   model.onnx        openvino   model.xml + model.bin        sparse   sparse.safetensors
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoConfig, PretrainedConfig, PreTrainedModel
from transformers.utils import logging

from bermo.data.load import own_task
from bermo.data.tasks import Kind
from bermo.encoders.families import family_of
from bermo.errors import BermoError
from bermo.methods.predict import LOADERS, Trained, read_trained
from bermo.models.encoder import BermoConfig
from bermo.models.tasks import has_segments
from bermo.ship.runtimes.forms import Runtime

FILES: dict[Runtime, str] = {
    "onnxruntime": "model.onnx",
    "openvino": "model.xml",
    "sparse": "sparse.safetensors",
    "torch": "config.json",
}
WEIGHTS = (".safetensors", ".onnx", ".data", ".bin", ".xml")
HEADS: dict[str, Kind] = {
    "ForSequenceClassification": "classification",
    "ForTokenClassification": "tagging",
    "ForQuestionAnswering": "span",
    "ForMultipleChoice": "choice",
}


@dataclass(frozen=True, kw_only=True)
class Source:
    """A folder with a model that can be measured, predicted with or exported."""

    folder: Path
    runtime: Runtime
    precision: str
    trained: Trained
    has_segments: bool

    @property
    def num_bytes(self) -> int:
        """The size of the model's own files; tokenizer, config and notes do not count."""
        files = (path for path in self.folder.iterdir() if path.suffix in WEIGHTS)
        return sum(path.stat().st_size for path in files)

    @property
    def is_export(self) -> bool:
        """Whether `bermo export` wrote the folder."""
        return (self.folder / "export.json").is_file()


def find_source(folder: str | Path) -> Source:
    """Describe a run's folder, a model's or an export's; no weights are read."""
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise BermoError(f"There is no folder {path}. Give a run, a model's folder or an export.")
    if (path / "model").is_dir():
        path = path / "model"
    elif (path / "spec.json").exists():
        raise BermoError(f"The run in {path} is not finished: it has no model yet.")
    runtime = next((runtime for runtime, name in FILES.items() if (path / name).is_file()), None)
    if runtime is None or not (path / "config.json").is_file():
        raise BermoError(
            f"{path} is not a model: it holds neither config.json nor an export of bermo's. Give the"
            " folder of a finished run, or of a saved model."
        )
    config = _read_config(path)
    return Source(
        folder=path,
        runtime=runtime,
        precision=_precision(path),
        trained=_trained(path, config),
        has_segments=has_segments(path),
    )


def load_torch(source: Source) -> PreTrainedModel:
    """Load the model of a torch folder in float32, in eval mode."""
    if source.runtime != "torch":
        raise BermoError(
            f"{source.folder} is made for {source.runtime}. Give the model that it was made from."
        )
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        loader = LOADERS[source.trained.task.kind]
        model = loader.from_pretrained(source.folder, dtype="float32")
    except (OSError, ValueError) as error:
        raise BermoError(f"The model in {source.folder} could not be loaded: {error}") from error
    finally:
        logging.set_verbosity(level)
    return model.eval().requires_grad_(False)


def check_not_exported(source: Source) -> None:
    """Refuse an export where the model that it was made from is wanted."""
    if source.is_export:
        raise BermoError(
            f"{source.folder} is an export already ({source.runtime}). Give the model that it was made from."
        )


def read_export(folder: Path) -> dict[str, Any]:
    """Return what export.json says, or nothing where there is none."""
    path = folder / "export.json"
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return content


def _precision(folder: Path) -> str:
    return str(read_export(folder).get("precision", "fp32"))


def _read_config(folder: Path) -> PretrainedConfig:
    try:
        config = AutoConfig.from_pretrained(folder)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise BermoError(f"{folder / 'config.json'} cannot be read: {reason}") from error
    family_of(config.backbone if isinstance(config, BermoConfig) else config)
    return config


def _trained(folder: Path, config: PretrainedConfig) -> Trained:
    """Read task.json; for a plain transformers model, work out the same from its config."""
    if (folder / "task.json").exists():
        return read_trained(folder)
    name = next(iter(config.architectures or ()), "")
    kind = next((kind for ending, kind in HEADS.items() if name.endswith(ending)), None)
    if kind is None:
        raise BermoError(
            f"{folder} holds {name or 'a model'} without a head for a task. Train one on it first:"
            f" bermo train --model {folder} …"
        )
    if kind == "classification" and config.num_labels == 1:
        kind = "regression"
    names: dict[int, str] = config.id2label or {}  # type: ignore[assignment]
    labels = tuple(str(names[place]).removeprefix("LABEL_") for place in sorted(names))
    return Trained(
        task=own_task(kind),
        labels=() if kind == "regression" else labels,
        text=(),
        max_length=128,
        stride=128,
    )
