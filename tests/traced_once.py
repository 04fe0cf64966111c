"""ONNX graphs of the tests' models: one trace of a model serves every export of it, in all test processes.

A trace takes seconds, and many tests export the same tiny model. Tests of the trace itself call
bermo.ship.export.onnx.write_onnx, which is not replaced.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

WriteOnnx = Callable[..., None]


def traced_once(write_onnx: WriteOnnx, folder: Path) -> WriteOnnx:
    """Return a writer of graphs that keeps each in the folder, under a name made from the model."""

    def write(model: PreTrainedModel, example: Mapping[str, Tensor], path: Path, **more: bool) -> None:
        kept = folder / f"{_name(model, example)}{''.join(sorted(more))}.onnx"
        if not kept.exists():
            write_onnx(model, example, path, **more)
            whole = kept.with_suffix(f".{os.getpid()}")
            shutil.copyfile(path, whole)
            whole.replace(kept)
        shutil.copyfile(kept, path)

    return write


def _name(model: PreTrainedModel, example: Mapping[str, Tensor]) -> str:
    """Name a model by all that its graph is made from: class, config, weights and the names of its inputs."""
    known = hashlib.sha256()
    known.update(f"{type(model)} {_lasting(model.config.to_dict())} {sorted(example)}".encode())
    for name, value in model.state_dict().items():
        known.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        known.update(value.contiguous().numpy().tobytes())
    return known.hexdigest()


def _lasting(config: Any) -> Any:
    """Return a config without what changes when it is saved and loaded again."""
    if not isinstance(config, dict):
        return config
    passing = ("architectures", "dtype", "transformers_version", "_name_or_path", "name_or_path")
    return {key: _lasting(value) for key, value in sorted(config.items()) if key not in passing}
