"""The one way to open the folder of a trained model: a run, one of its seeds, a saved model, or an export.

    open_trained(path) -> TrainedFolder     what the folder holds; nothing large is read
      .load_model()                         the torch model, in float32 and eval mode
      .load_tokenizer()  .read_spec()       its tokenizer; the spec of the run that it belongs to

The files of a folder are made for one of four runtimes:

    torch         config.json + *.safetensors: a model of bermo's, a plain transformers model with a head
    onnxruntime   model.onnx        openvino   model.xml + model.bin        sparse   sparse.safetensors

Every folder that cannot be opened gets one sentence, which is the same wherever the folder was named.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import (
    AutoConfig,
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from bermo.data.tasks import Kind
from bermo.encoders import families
from bermo.encoders.backbone import load_tokenizer, resolve
from bermo.encoders.failures import loading
from bermo.errors import BermoError
from bermo.models.encoder import BermoConfig, BermoPreTrainedModel, encoder_config
from bermo.runs.folder import MODEL, RESULT_FILE, SPEC_FILE, read_run_spec
from bermo.runs.task_file import TrainedTask, read_task
from bermo.spec import RunSpec

Runtime = Literal["torch", "onnxruntime", "openvino", "sparse"]
MODEL_FILES: Mapping[Runtime, str] = {
    "onnxruntime": "model.onnx",
    "openvino": "model.xml",
    "sparse": "sparse.safetensors",
    "torch": "config.json",
}
"""The file by which the runtime of a folder is known; every folder has a config, so torch comes last."""
EXPORT_FILE = "export.json"
WEIGHT_SUFFIXES = (".safetensors", ".onnx", ".data", ".bin", ".xml")
AUTO_CLASSES: Mapping[Kind, Any] = {
    "classification": AutoModelForSequenceClassification,
    "regression": AutoModelForSequenceClassification,
    "tagging": AutoModelForTokenClassification,
    "span": AutoModelForQuestionAnswering,
    "choice": AutoModelForMultipleChoice,
}
EXPECTED = "Give the folder of a finished run, of a saved model or of an export."


@dataclass(frozen=True, kw_only=True)
class TrainedFolder:
    """A folder with a trained model: its runtime, what it was trained for, and by which run."""

    folder: Path
    """Where the model's files are: for a run, the `model` folder in it."""
    runtime: Runtime
    precision: str
    config: PretrainedConfig
    trained: TrainedTask
    run: Path | None = None
    """The folder of the run, where the run itself or one of its seeds was named."""

    @property
    def has_segments(self) -> bool:
        """Whether the model reads the segment ids of sentence pairs."""
        return families.has_segments(encoder_config(self.config))

    @property
    def num_bytes(self) -> int:
        """The size of the model's own files; tokenizer, configs and cards do not count."""
        files = (path for path in self.folder.iterdir() if path.suffix in WEIGHT_SUFFIXES)
        return sum(path.stat().st_size for path in files)

    @property
    def is_export(self) -> bool:
        """Whether `bermo export` wrote the folder."""
        return (self.folder / EXPORT_FILE).is_file()

    def read_spec(self) -> RunSpec | None:
        """Return the spec of the run, or None where no run was named."""
        return None if self.run is None else read_run_spec(self.run)

    def load_tokenizer(self) -> PreTrainedTokenizerBase:
        """Load the tokenizer beside the model."""
        return load_tokenizer(self.folder)

    def create_model(self) -> PreTrainedModel:
        """Build a model of the same class and shape with random weights."""
        model: PreTrainedModel = AUTO_CLASSES[self.trained.task.kind].from_config(self.config)
        return model

    def load_model(self) -> PreTrainedModel:
        """Load the model in float32 and eval mode; an export has none that torch can load."""
        if self.runtime != "torch":
            raise BermoError(
                f"{self.folder} is an export already ({self.runtime}). Give the model that it was made from."
            )
        with loading("weights", self.folder):
            model, report = AUTO_CLASSES[self.trained.task.kind].from_pretrained(
                self.folder, dtype=torch.float32, output_loading_info=True
            )
        missing = sorted(report["missing_keys"])
        if missing:
            raise BermoError(
                f"{self.folder} lacks {len(missing)} of the model's weights ({', '.join(missing[:3])} …),"
                " which would stay random. Copy the whole folder anew from where the model was saved."
            )
        return model.eval()

    def load_bermo_model(self) -> BermoPreTrainedModel:
        """Load a model with a layer mix, as bermo trains it; a plain transformers model is refused."""
        if not isinstance(self.config, BermoConfig):
            raise BermoError(
                f"{self.folder} holds a {self.config.model_type} model, not one that bermo trained. Train it"
                f" first: bermo train --model {self.folder} …"
            )
        model = self.load_model()
        assert isinstance(model, BermoPreTrainedModel)
        return model


def open_trained(path: str | Path) -> TrainedFolder:
    """Open the folder of a run, of a seed, of a saved model or of an export; no weights are read."""
    given = Path(path).expanduser()
    folder = model_folder(given)
    runtime = next((runtime for runtime, name in MODEL_FILES.items() if (folder / name).is_file()), None)
    if runtime is None or not (folder / MODEL_FILES["torch"]).is_file():
        raise BermoError(
            f"{folder} holds no model: there is neither config.json nor an export of bermo's. {EXPECTED}"
        )
    with loading("config", folder):
        config = AutoConfig.from_pretrained(folder)
    families.family_of(encoder_config(config))
    return TrainedFolder(
        folder=folder,
        runtime=runtime,
        precision=str(read_export(folder).get("precision", "fp32")),
        config=config,
        trained=read_task(folder, config),
        run=run_of(given),
    )


def model_folder(path: str | Path) -> Path:
    """Return where the model's files are: the given folder, or the model of the run or seed that it is."""
    folder = Path(path).expanduser()
    if folder.is_file():
        raise BermoError(f"{folder} is a file. {EXPECTED}")
    if not folder.is_dir():
        raise BermoError(f"There is no folder {folder}. {EXPECTED}")
    if (folder / MODEL_FILES["torch"]).is_file():
        return folder
    if (folder / MODEL).is_dir():
        return folder / MODEL
    if run_of(folder) is None:
        return folder
    if (folder / RESULT_FILE).exists():
        raise BermoError(
            f"The run in {folder} has ended but kept no model: it had --keep none, or it diverged before its"
            " first evaluation. Train again with --keep best, or with a smaller --lr."
        )
    raise BermoError(
        f"The run in {folder} is not finished: it has no model yet. Give the command of the run again, and"
        " it goes on where it stopped."
    )


def resolve_model(name: str | Path) -> str:
    """Return what the name of a model means: the folder with its files, or the name itself on the hub."""
    resolved = resolve(name)
    return str(model_folder(resolved)) if Path(resolved).is_dir() else resolved


def run_of(path: Path) -> Path | None:
    """Return the run's folder if `path` is a run or one of its seeds, or None."""
    if (path / SPEC_FILE).exists():
        return path
    is_seed = path.name.startswith("seed-") and (path.parent / SPEC_FILE).exists()
    return path.parent if is_seed else None


def read_export(folder: Path) -> dict[str, Any]:
    """Return what export.json records of an export, or nothing where there is none."""
    path = folder / EXPORT_FILE
    if not path.exists():
        return {}
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BermoError(f"{path} is damaged ({error}). Export the model again.") from error
    return content
