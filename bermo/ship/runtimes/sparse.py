"""The sparse container of a pruned model: sparse.safetensors, config, tokenizer, and an exact way back.

A prunable matrix becomes `NAME.places`, `NAME.codes` and, for int8, `NAME.scales` (see `packed.py`); every
other tensor is stored as it is, in fp32 or, with other values, in fp16. By GOBO's centroids matrices are
stored in three bits and tables of embeddings in four, by groups in two or three and eight; then a model that
was never pruned has a container too.
The file's header says how each matrix was packed. What is loaded is an ordinary model in float32, equal to
what was stored to the bit.
"""

import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from torch import nn
from transformers import PreTrainedModel

from bermo.encoders.failures import loading
from bermo.encoders.sites import layers_of, prunable_sites
from bermo.encoders.trust import check_finite
from bermo.errors import BermoError
from bermo.files import DAMAGED
from bermo.models.quantized import SMALLEST_TABLE
from bermo.pruning.fold import count
from bermo.runs.trained import TrainedFolder, open_trained
from bermo.ship.runtimes.forms import Values
from bermo.ship.runtimes.packed import Coding, Packed, pack, unpack

LARGEST_RATIO, ALWAYS_FITS = 200, 64 << 20
"""A container may unpack to so many times its own bytes (at a density of 1 % the matrices alone become 130
times larger), or to so many bytes."""
IN_BITS: Mapping[Values, tuple[Coding, Coding]] = {
    "gobo": ("gobo3", "gobo4"),
    "groups3": ("groups3", "groups8"),
    "groups2": ("groups2", "groups8"),
}
"""How matrices and tables of embeddings are stored in few bits."""
LARGEST_DENSITY = 0.95
"""A model that keeps more than this was never pruned, and a container would save nothing."""


@dataclass(frozen=True, kw_only=True)
class SparseSize:
    """Bytes of a container beside the dense model in fp32: its encoder's layers, and the whole of it."""

    encoder: int
    encoder_dense: int
    model: int
    model_dense: int
    density: float

    @property
    def encoder_ratio(self) -> float:
        """How many times smaller the encoder's layers are, embeddings and head left out."""
        return self.encoder_dense / self.encoder

    @property
    def model_ratio(self) -> float:
        """How many times smaller the whole model is, embeddings included."""
        return self.model_dense / self.model


def check_pruned(model: PreTrainedModel, folder: Path) -> float:
    """Return the density of a model's matrices, or refuse one that was never pruned."""
    sites = prunable_sites(model)
    kept = sum(int(torch.count_nonzero(site.weight)) for site in sites)
    density = kept / sum(site.weight.numel() for site in sites)
    if density > LARGEST_DENSITY:
        raise BermoError(
            f"{folder} was never pruned: {density:.1%} of its weights are kept, so a sparse container"
            " would save nothing. Train with --prune movement --density 0.1, or export --to onnx-int8."
        )
    return density


def write_sparse(model: PreTrainedModel, path: Path, values: Values) -> SparseSize:
    """Write a model's weights as one file, and return what it came to."""
    codings = _codings(model, values)
    layers = {id(p) for layer in layers_of(model) for p in layer.parameters()}
    arrays: dict[str, np.ndarray] = {}
    packed_as: dict[str, dict[str, Any]] = {}
    encoder = encoder_dense = model_dense = 0
    for name, tensor in distinct_state(model).items():
        if (coding := codings.get(id(tensor))) is not None:
            matrix = tensor.detach().float().cpu().numpy()
            packed = pack(matrix.reshape(len(matrix), -1), coding)
            packed_as[name] = {
                "shape": list(matrix.shape),
                "places": packed.positions_form,
                "values": coding,
            }
            parts: dict[str, np.ndarray] = {"places": packed.positions, "codes": packed.codes}
            parts |= {} if packed.scales is None else {"scales": packed.scales}
        else:
            parts = {"": _stored(tensor, values)}
        arrays |= {f"{name}.{part}" if part else name: array for part, array in parts.items()}
        model_dense += 4 * tensor.numel()
        if id(tensor) in layers:
            encoder_dense += 4 * tensor.numel()
            encoder += sum(array.nbytes for array in parts.values())
    # One entry: safetensors writes several in an order that differs from process to process.
    save_file(arrays, path, {"packed": json.dumps(packed_as)})
    return SparseSize(
        encoder=encoder,
        encoder_dense=encoder_dense,
        model=path.stat().st_size,
        model_dense=model_dense,
        density=count(model).encoder_density,
    )


def _codings(model: PreTrainedModel, values: Values) -> dict[int, Coding]:
    """Return how each weight that is packed is stored, by its id."""
    sites = [id(site.weight) for site in prunable_sites(model)]
    of_matrices, of_tables = IN_BITS.get(values, (None, None))
    if of_matrices is None or of_tables is None:
        return dict.fromkeys(sites, cast(Coding, values))
    tables = [module.weight for module in model.modules() if isinstance(module, nn.Embedding)]
    embeddings: dict[int, Coding] = {id(table): of_tables for table in tables if len(table) >= SMALLEST_TABLE}
    return embeddings | dict.fromkeys(sites, of_matrices)


def load_sparse(folder: str | Path) -> PreTrainedModel:
    """Load the model of a sparse container: an ordinary one, in float32 and eval mode."""
    folder = Path(folder)
    path = folder / "sparse.safetensors"
    if not path.is_file():
        raise BermoError(f"{folder} holds no sparse container (there is no {path.name}).")
    state = read_sparse(path)
    opened = open_trained(folder)
    _check_shapes(opened, path, state)
    model = opened.create_model()
    with loading("weights", path):
        missing, unexpected = model.load_state_dict(state, strict=False)
    model.tie_weights()
    lost = [name for name in missing if name not in _tied(model, state)]
    if lost or unexpected:
        raise BermoError(
            f"{path} does not fit {folder / 'config.json'}: {(lost or unexpected)[0]} is"
            f" {'missing' if lost else 'unknown'}. Export the model again."
        )
    check_finite(folder, model)
    return model.float().eval().requires_grad_(False)


def read_sparse(path: Path) -> dict[str, torch.Tensor]:
    """Return the weights of a container by name, in float32."""
    try:
        with safe_open(path, framework="numpy") as file:
            packed_as = json.loads((file.metadata() or {})["packed"])
            _check_claims(packed_as, path)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return _unpacked(arrays, packed_as)
    except (SafetensorError, zlib.error, ZeroDivisionError, *DAMAGED) as error:
        raise BermoError(f"{path} is no whole sparse container: {error}. Export the model again.") from error


def _check_claims(packed_as: dict[str, Any], path: Path) -> None:
    """Refuse shapes that are none, or that ask for far more memory than a file of this size can fill."""
    claimed = 0
    for name, how in packed_as.items():
        if not how["shape"] or not all(isinstance(n, int) and n > 0 for n in how["shape"]):
            raise ValueError(f"{name} is of the shape {how['shape']}")
        claimed += 4 * math.prod(how["shape"])
    if claimed > max(ALWAYS_FITS, LARGEST_RATIO * path.stat().st_size):
        raise ValueError(f"{path.stat().st_size:,} bytes claim to hold {claimed:,} of weights")


def _check_shapes(opened: TrainedFolder, path: Path, state: dict[str, torch.Tensor]) -> None:
    """Refuse a config that asks for other or more weights than the container has, before they are made."""
    with torch.device("meta"), loading("weights", path):
        parameters = dict(opened.create_model().named_parameters())
    sizes = {name: value.numel() for name, value in parameters.items()}
    wrong = [name for name in sizes if name in state and state[name].numel() != sizes[name]]
    # Weights that two modules share may be missing in the container, so it has no less than half of them.
    if wrong or sum(sizes.values()) > 2 * sum(tensor.numel() for tensor in state.values()):
        what = f"{wrong[0]} is of another size" if wrong else f"it asks for {sum(sizes.values()):,} weights"
        raise BermoError(
            f"{path} does not fit {opened.folder / 'config.json'}: {what}. Export the model again."
        )


def _unpacked(arrays: dict[str, np.ndarray], packed_as: dict[str, Any]) -> dict[str, torch.Tensor]:
    state = {}
    for name, how in packed_as.items():
        rows = how["shape"][0]
        packed = Packed(
            rows=rows,
            columns=int(np.prod(how["shape"])) // rows,
            positions_form=how["places"],
            positions=arrays.pop(f"{name}.places"),
            values=how["values"],
            codes=arrays.pop(f"{name}.codes"),
            scales=arrays.pop(f"{name}.scales", None),
        )
        state[name] = torch.from_numpy(unpack(packed).reshape(how["shape"]))
    for name, array in arrays.items():
        state[name] = torch.from_numpy(array.astype(np.float32 if array.dtype.kind == "f" else array.dtype))
    return state


def distinct_state(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return what a model saves, a weight that two modules share once."""
    named = dict(model.named_parameters())  # names each parameter once
    saved = set(model.state_dict())
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in saved}
    return named | buffers


def _stored(tensor: torch.Tensor, values: Values) -> np.ndarray:
    array: np.ndarray = tensor.detach().cpu().numpy()
    is_halved = values != "fp32" and array.dtype == np.float32
    return np.ascontiguousarray(array.astype(np.float16) if is_halved else array)


def _tied(model: nn.Module, state: dict[str, torch.Tensor]) -> set[str]:
    """Return the names that share their weight with a loaded one."""
    whole = model.state_dict()
    loaded = {whole[name].data_ptr() for name in state if name in whole}
    return {name for name, tensor in whole.items() if tensor.data_ptr() in loaded}
