"""Where the files of a trained model are, found by their names alone. No torch is imported.

    find_model(path) -> FoundModel     the folder of the files, and the runtime that they are made for
    torch         config.json + *.safetensors: a model of bermo's, a plain transformers model with a head
    onnxruntime   model.onnx        openvino   model.xml + model.bin        sparse   sparse.safetensors

A folder without a model gets one sentence, which is the same wherever the folder was named.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bermo.encoders import where
from bermo.encoders.where import resolve
from bermo.errors import BermoError
from bermo.files import DAMAGED, read_sealed, reading

SPEC_FILE, RESULT_FILE = "spec.json", "result.json"
MODEL = "model"
"""What a run's folder holds."""
Runtime = Literal["torch", "onnxruntime", "openvino", "sparse"]
MODEL_FILES: Mapping[Runtime, str] = {
    "onnxruntime": "model.onnx",
    "openvino": "model.xml",
    "sparse": "sparse.safetensors",
    "torch": "config.json",
}
"""The file by which the runtime of a folder is known; every folder has a config, so torch comes last."""
HUB_FOLDER = "onnx"
HUB_GRAPHS = (f"{HUB_FOLDER}/model_quantized.onnx", f"{HUB_FOLDER}/model.onnx")
"""Where the graph of an export with the hub's layout is: the first of these that is there."""
EXPORT_FILE = "export.json"
SHRINK_FILE = "shrink.json"
ESTIMATOR_FILE = "estimator.json"
TASK_FILE = "task.json"
COMPRESS_FILE = "compress.json"
WEIGHT_SUFFIXES = (".safetensors", ".onnx", ".data", ".bin", ".xml")
EXPECTED = "Give the folder of a finished run, of a saved model or of an export."


@dataclass(frozen=True, kw_only=True)
class FoundModel:
    """The folder with a model's files, and the runtime that they are made for."""

    folder: Path
    runtime: Runtime

    @property
    def is_export(self) -> bool:
        """Whether `bermo export` wrote the folder."""
        return (self.folder / EXPORT_FILE).is_file()


def find_model(path: str | Path) -> FoundModel:
    """Find the model in the folder of a run, of a seed, of a saved model or of an export."""
    if not str(path):
        raise BermoError(f"The name of the model's folder is empty. {EXPECTED}")
    folder = model_folder(path)
    runtime = next((runtime for runtime, name in MODEL_FILES.items() if (folder / name).is_file()), None)
    if runtime == "torch" and hub_graph(folder) is not None:
        runtime = "onnxruntime"
    if runtime is None or not (folder / MODEL_FILES["torch"]).is_file():
        raise BermoError(
            f"{folder} holds no model: there is neither config.json nor an export of bermo's. {EXPECTED}"
        )
    return FoundModel(folder=folder, runtime=runtime)


def hub_graph(folder: Path) -> Path | None:
    """Return the graph of an export with the hub's layout; None for any other folder, and for one from the
    hub, of which the torch model is used.
    """
    if not (folder / EXPORT_FILE).is_file():
        return None
    return next((folder / name for name in HUB_GRAPHS if (folder / name).is_file()), None)


def check_not_exported(path: str | Path) -> None:
    """Refuse an export where the model that it was made from is wanted."""
    found = find_model(path)
    if found.is_export:
        raise BermoError(
            f"{path} is an export already ({found.runtime}). Give the model that it was made from."
        )


def check_has_layers(folder: str | Path) -> None:
    """Refuse an export for another runtime than torch where layers are to be read."""
    for runtime, name in MODEL_FILES.items():
        if runtime != "torch" and (Path(folder) / name).is_file():
            raise BermoError(
                f"{folder} is an export for {runtime}, whose layers cannot be read one by one. Give the run"
                " or the model that it was made from."
            )


def model_folder(path: str | Path) -> Path:
    """Return where the model's files are: the given folder, the model of the run or seed that it is, or the
    encoder in the package where "box" is no folder.
    """
    folder = Path(path).expanduser()
    if folder.is_file():
        raise BermoError(f"{folder} is a file. {EXPECTED}")
    if str(path) == "box" and not folder.is_dir():
        return where.BOX
    if not folder.is_dir():
        raise BermoError(f"There is no folder {folder}. {EXPECTED}")
    if (folder / MODEL_FILES["torch"]).is_file():
        return folder
    if (folder / MODEL).is_dir():
        return folder / MODEL
    if (folder / COMPRESS_FILE).is_file():
        raise BermoError(
            f"The compress in {folder} has no model: it is not finished, or nothing reached its goal. Give"
            " its command again, and it goes on where it stopped."
        )
    if run_of(folder) is None:
        return folder
    if (folder / RESULT_FILE).exists():
        raise BermoError(
            f"The run in {folder} has ended but kept no model: it had --keep none, or it diverged before"
            " there was one to keep. Train again with --keep best, or with a smaller --lr."
        )
    raise BermoError(
        f"The run in {folder} is not finished: it has no model yet. Give the command of the run again, and"
        " it goes on where it stopped."
    )


def warn_diverged(path: str | Path, tell: Callable[[str], None]) -> None:
    """Say that the model of a folder comes from a training that diverged, where a file beside it says so."""
    reason = divergence(path)
    if reason is not None:
        tell(
            f"Careful: the training of {path} diverged ({reason}). What is made from this model, or learned"
            " from it, will be no better."
        )


def divergence(path: str | Path) -> str | None:
    """How the training of a run, a seed, their model, an export or a shrunk model diverged; None: it did not,
    or nothing is known of it.
    """
    folder = Path(path).expanduser()
    beside = (folder.parent / RESULT_FILE,) if folder.name == MODEL else ()
    for file in (
        *beside,
        *(folder / name for name in (RESULT_FILE, EXPORT_FILE, SHRINK_FILE, ESTIMATOR_FILE)),
    ):
        try:
            values = read_sealed(file)
            # The model of a run is its best seed's: one that did not diverge, if there is any.
            reasons = [seed["diverged"] for seed in values.get("seeds", [values])]
        except (OSError, *DAMAGED):
            continue
        if reasons and all(reasons):
            return str(reasons[0])
    return None


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
    with reading(path, "Export the model again."):
        return dict(json.loads(path.read_text(encoding="utf-8")))
