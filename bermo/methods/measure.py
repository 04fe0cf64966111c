"""What a training cost and where it ran."""

import math
import platform
from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING

import torch
import transformers
from transformers import PreTrainedModel

from bermo.encoders.sites import layers_of
from bermo.machine import peak_memory_bytes, processor
from bermo.printing import number_of

if TYPE_CHECKING:
    from accelerate import Accelerator


def versions() -> dict[str, str]:
    """Return the versions that decide what is computed."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "accelerate": version("accelerate"),
    }


def reset_peak_memory() -> None:
    """Count the GPU's peak from here on."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def peak_memory() -> float:
    """Peak memory in MiB: of the GPU where one is used, else of this process."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**20
    return peak_memory_bytes() / 2**20


def device_name(accelerator: "Accelerator") -> str:
    """Name the device that computes."""
    if accelerator.device.type == "cuda":
        return torch.cuda.get_device_name(accelerator.device)
    return f"{processor().architecture} CPU, {number_of(torch.get_num_threads(), 'thread')}"


class LayerGradients:
    """The norm of all gradients of each layer, from those of its parameters."""

    def __init__(self, model: PreTrainedModel) -> None:
        names = {id(p): name for name, p in model.named_parameters()}
        self.layers = [[names[id(p)] for p in layer.parameters()] for layer in layers_of(model)]

    def __call__(self, norms: Mapping[str, float]) -> dict[str, float]:
        return {
            f"gradient/layer.{index}": math.hypot(*(norms.get(name, 0.0) for name in names))
            for index, names in enumerate(self.layers, start=1)
        }
