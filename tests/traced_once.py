"""ONNX graphs of the tests' models: one trace of a model serves every export of it, in all test processes,
and one trace of a structure serves every model of that structure, in a process.

A trace takes seconds, and many tests export the same tiny models, with the same weights or with others.
Tests of the trace itself call bermo.ship.export.onnx.write_onnx, which is not replaced.
"""

import copy
import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.onnx._internal.exporter import _core
from transformers import PreTrainedModel

WriteOnnx = Callable[..., None]
LABELS = ("id2label", "label2id")
"""How answers are called; how many there are is told by the shapes of the weights."""
TRAINING = ("init", "quantized")
"""How the mix began, and whether rounding was trained: no graph depends on either, to the byte."""


def traced_once(write_onnx: WriteOnnx, folder: Path) -> WriteOnnx:
    """Return a writer of graphs that keeps each in the folder, under a name made from the model."""
    programs = Programs()

    def write(model: PreTrainedModel, example: Mapping[str, Tensor], path: Path, **more: bool) -> None:
        kept = folder / f"{_name(model, example)}{''.join(sorted(more))}.onnx"
        if not kept.exists():
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(torch.export, "export", programs.export)
                patch.setattr(_core, "_prepare_exported_program_for_export", programs.prepare)
                write_onnx(model, example, path, **more)
            whole = kept.with_suffix(f".{os.getpid()}")
            shutil.copyfile(path, whole)
            whole.replace(kept)
        shutil.copyfile(kept, path)

    return write


class Programs:
    """Traced and decomposed programs by the structure of their models; weights are put in anew."""

    def __init__(self) -> None:
        self.trace, self.decompose = torch.export.export, _core._prepare_exported_program_for_export
        self.prepared: dict[str, ExportedProgram] = {}

    def export(self, module: nn.Module, *arguments: Any, **options: Any) -> ExportedProgram:
        """Trace a module, or put its weights into the program of one that is built alike."""
        self.structure = _structure(module, arguments[1])
        if self.structure not in self.prepared:
            return self.trace(module, *arguments, **options)
        program = copy.copy(self.prepared[self.structure])
        own = module.state_dict(keep_vars=True) | dict(module.named_buffers())
        program._state_dict = {name: own[name] for name in program.state_dict}
        program._constants = {name: own.get(name, value) for name, value in program.constants.items()}
        return program

    def prepare(self, program: ExportedProgram, *, registry: Any) -> ExportedProgram:
        """Decompose a program that was traced now; one of those that are kept is decomposed."""
        if self.structure not in self.prepared:
            self.prepared[self.structure] = self.decompose(program, registry=registry)
            return self.prepared[self.structure]
        return program


def _structure(module: nn.Module, example: Mapping[str, Tensor]) -> str:
    """All of a model but its weights: modules, config, shapes and the names of its inputs."""
    shapes = {name: (value.dtype, tuple(value.shape)) for name, value in module.state_dict().items()}
    model = next(child for child in module.modules() if isinstance(child, PreTrainedModel))
    return f"{module} {_lasting(model.config.to_dict())} {shapes} {sorted(example)}"


def _name(model: PreTrainedModel, example: Mapping[str, Tensor]) -> str:
    """Name a model by all that its graph is made from: class, config, weights and the names of its inputs."""
    known = hashlib.sha256()
    known.update(f"{type(model)} {_lasting(model.config.to_dict())} {sorted(example)}".encode())
    for name, value in model.state_dict().items():
        known.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        known.update(value.contiguous().numpy().tobytes())
    return known.hexdigest()


def _lasting(config: Any) -> Any:
    """Return a config without what saving changes and what no graph depends on."""
    if not isinstance(config, dict):
        return config
    passing = ("architectures", "dtype", "transformers_version", "_name_or_path", "name_or_path")
    passing += LABELS + TRAINING
    return {key: _lasting(value) for key, value in sorted(config.items()) if key not in passing}
