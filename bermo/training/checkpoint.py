"""The state of a run on disk: safetensors and JSON, written whole or not at all, checked on load.

    checkpoints/step-00001200/ = model.safetensors + optimizer.safetensors + manifest.json

The manifest names the run it belongs to (`identity`), the loop's own numbers (`state`), the size and CRC-32
of each file, and its own CRC-32. A folder that is not whole, damaged or of another run is reported and
skipped; `set_aside` renames it, so that it neither counts nor is tried again.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from bermo.files import DAMAGED, checksum, is_sealed, whole_folder, write_sealed

FORMAT = 5
NUM_KEPT = 2


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One whole checkpoint on disk."""

    path: Path
    step: int
    state: dict[str, Any]


def save(
    folder: Path, model: nn.Module, optimizer: Optimizer, *, identity: str, state: dict[str, Any]
) -> Path:
    """Write a checkpoint of step `state["step"]` into `folder`, then delete all but the newest two."""
    target = folder / f"step-{state['step']:08d}"
    with whole_folder(target) as temporary:
        save_file(_model_tensors(model), temporary / "model.safetensors")
        save_file(_optimizer_tensors(model, optimizer), temporary / "optimizer.safetensors")
        sums = {file.name: checksum(file) for file in sorted(temporary.iterdir())}
        manifest = {"format": FORMAT, "identity": identity, "state": state, "files": sums}
        write_sealed(temporary / "manifest.json", manifest)
    _keep_newest(folder, "step-*")
    return target


def _keep_newest(folder: Path, names: str) -> None:
    for old in sorted(folder.glob(names))[:-NUM_KEPT]:
        shutil.rmtree(old, ignore_errors=True)


def num_bytes(model: nn.Module) -> int:
    """Return about how large a checkpoint is: all weights, and two moments of those that are trained."""
    return sum(p.nbytes * (3 if p.requires_grad else 1) for p in model.parameters())


def disk_note(folder: Path, model: nn.Module) -> str:
    """Say how much of the disk checkpoints take; a new one is written before the oldest goes."""
    size = num_bytes(model) / 1e6
    most = (NUM_KEPT + 1) * size
    free = shutil.disk_usage(
        next(part for part in (folder, *folder.absolute().parents) if part.exists())
    ).free
    said = f"Checkpoints of {size:,.1f} MB in {folder}: {NUM_KEPT} are kept, {most:,.1f} MB at most."
    if free >= most * 1e6:
        return said
    return f"{said} This disk has {free / 1e6:,.1f} MB left: make room, or the training ends when it is full."


def find_last(folder: Path, identity: str, tell: Callable[[str], None]) -> Checkpoint | None:
    """Return the newest whole checkpoint of this run; `tell` gets a sentence for each one that is skipped."""
    for path in sorted(folder.glob("step-*"), reverse=True):
        fault, manifest = _inspect(path, identity)
        if fault is None:
            return Checkpoint(path=path, step=manifest["state"]["step"], state=manifest["state"])
        tell(f"Checkpoint {path} is skipped: {fault}.")
    return None


def set_aside(folder: Path, last: Checkpoint | None) -> None:
    """Rename the checkpoints that were skipped, all newer than `last`, so that they do not count."""
    for path in sorted(folder.glob("step-*")):
        if last is None or path.name > last.path.name:
            shutil.rmtree(skipped := path.with_name(f"skipped-{path.name}"), ignore_errors=True)
            path.rename(skipped)
    _keep_newest(folder, "skipped-*")


def load_(checkpoint: Checkpoint, model: nn.Module, optimizer: Optimizer) -> None:
    """Put a checkpoint's weights and optimiser state back, in place."""
    tensors = load_file(checkpoint.path / "model.safetensors")
    with torch.no_grad():
        for name, tensor in _model_tensors(model).items():
            tensor.copy_(tensors[name])
    saved = load_file(checkpoint.path / "optimizer.safetensors")
    steps_on_device = any(g.get("fused") or g.get("capturable") for g in optimizer.param_groups)
    parameters = dict(model.named_parameters())
    for key, tensor in saved.items():
        name, _, slot = key.rpartition("/")
        device = parameters[name].device if slot != "step" or steps_on_device else "cpu"
        optimizer.state[parameters[name]][slot] = tensor.to(device)


def _model_tensors(model: nn.Module) -> dict[str, Tensor]:
    # named_parameters and named_buffers list a tied weight once; state_dict would list it twice.
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    return {name: tensor.detach() for name, tensor in tensors.items()}


def _optimizer_tensors(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    return {
        f"{name}/{slot}": value
        for name, parameter in model.named_parameters()
        for slot, value in optimizer.state.get(parameter, {}).items()
    }


def _inspect(path: Path, identity: str) -> tuple[str | None, dict[str, Any]]:
    """Return what is wrong with a checkpoint (None: nothing) and its manifest."""
    try:
        manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT:
            return f"its format is {manifest['format']}, this version reads {FORMAT}", {}
        if not is_sealed(manifest):
            return "manifest.json is damaged", {}
        if manifest["identity"] != identity:
            return "it belongs to another run", {}
        if not isinstance(manifest["state"]["step"], int):
            return "its step is no number", {}
        for name, expected in manifest["files"].items():
            if checksum(path / name) != expected:
                return f"{name} is damaged", {}
        return None, manifest
    except (OSError, *DAMAGED) as error:
        return f"it is not whole ({type(error).__name__}: {error})", {}
