"""A model that bermo saved, read straight from its file: what `from_pretrained` gives, in less time.

A load by transformers compiles a thousand patterns of names that older checkpoints have. Here a model of the
config's shape is built without values, and takes the tensors of model.safetensors as its own. That is done
only where the file holds exactly the weights of the model, by name, size and kind of number. All else is left
to `from_pretrained`, with its checks and sentences: a file in parts, half precision, masks of a checkpoint, a
weight that is missing, unknown, saved twice or of another size, and a file that cannot be read at all.
"""

import copy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers.initialization import no_init_weights

from bermo.encoders.trust import WHOLE, check_finite
from bermo.models.config import BermoConfig
from bermo.models.encoder import BermoPreTrainedModel

Model = TypeVar("Model", bound=BermoPreTrainedModel)


def read_saved(kind: type[Model], folder: Path, config: BermoConfig) -> Model | None:
    """Read a folder's model in float32 and eval mode; None where `from_pretrained` has to look at it."""
    # Windows lets no mapped file be replaced; quantized weights are made by another library.
    if sys.platform == "win32" or hasattr(config, "quantization_config"):
        return None
    try:
        tensors = _tensors_in(folder / WHOLE)
        model = _empty(kind, folder, config)
        is_whole = _fits(model, tensors)
    except Exception:  # a damaged file and an absurd config fail in any way
        return None
    if not is_whole:
        return None
    for name, own in _weights(model).items():
        if name in tensors:
            own.data = tensors[name]
    check_finite(folder, model)
    return model.eval()


def _tensors_in(file: Path) -> dict[str, Tensor]:
    """Map the tensors of a file into memory, by name."""
    with safe_open(file, framework="pt") as opened:
        return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118


def _empty(kind: type[Model], folder: Path, config: BermoConfig) -> Model:
    """Build a model whose weights have no values yet, its tied ones tied; no random number is drawn."""
    config = copy.deepcopy(config)
    config.name_or_path = str(folder)
    config.dtype = config.backbone.dtype = torch.float32
    drawn, default = torch.get_rng_state(), torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with no_init_weights():
            model = kind(config)
    finally:
        torch.set_default_dtype(default)
        torch.set_rng_state(drawn)
    model.tie_weights()
    return model


def _weights(model: nn.Module) -> Mapping[str, Tensor]:
    """Return what a model saves: parameters and buffers themselves, not copies."""
    weights: dict[str, Tensor] = model.state_dict(keep_vars=True)
    return weights


def _fits(model: nn.Module, tensors: Mapping[str, Tensor]) -> bool:
    """Tell whether a file holds each weight of a model once, in its size and kind of number, and no more."""
    own = _weights(model)
    taken = {id(own[name]) for name in tensors if name in own}
    return (
        tensors.keys() <= own.keys()
        and len(taken) == len(tensors)
        and taken == {id(weight) for weight in own.values()}
        and all(own[name].shape == tensor.shape for name, tensor in tensors.items())
        and all(own[name].dtype == tensor.dtype for name, tensor in tensors.items())
    )
