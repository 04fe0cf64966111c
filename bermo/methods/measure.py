"""What a training cost and where it ran, and whether it collapsed."""

import math
import platform
from collections.abc import Mapping

import accelerate
import numpy as np
import torch
import transformers
from accelerate import Accelerator
from transformers import PreTrainedModel

from bermo.data.scoring import TaskScores
from bermo.encoders.sites import layers_of
from bermo.machine import peak_memory_bytes, processor
from bermo.methods.checks import UNITS
from bermo.methods.prepare import Prepared
from bermo.spec import RunSpec
from bermo.training.job import Fit

# A classifier that learned something has left this share of the entropy of the labels behind.
CHANCE_SHARE = 0.98
# Points of accuracy above always giving the most common answer.
GUESSING_MARGIN = 3.0


def diagnose(prepared: Prepared, scores: TaskScores, ended: Fit) -> str | None:
    """Say how a training collapsed, or None: no number, one answer for everything, or a loss at chance."""
    if not ended.is_finite:
        return "the loss became infinite or not a number"
    if reason := one_answer(prepared, scores):
        return reason
    if prepared.data.task.kind == "classification" and _is_plain_loss(prepared.spec):
        targets = np.asarray(prepared.valid.targets)
        chance = _entropy(np.asarray(prepared.train.targets))
        most_common = 100 * float(np.unique(targets, return_counts=True)[1].max()) / len(targets)
        # Early in a training the answers can be good while the loss has hardly moved: that is no collapse.
        is_guessing = scores.values["accuracy"] <= most_common + GUESSING_MARGIN
        if is_guessing and ended.last_loss >= CHANCE_SHARE * chance:
            return f"the training loss {ended.last_loss:.3f} is still that of guessing ({chance:.3f})"
    return None


def one_answer(prepared: Prepared, scores: TaskScores) -> str | None:
    """Say which answer a model gives to everything, where more than one is right; else None."""
    kind = prepared.data.task.kind
    if kind == "regression":
        return None if scores.values["pearson"] else "every prediction is the same number"
    if kind == "span" or len(scores.predicted) != 1:
        return None
    targets = np.asarray(prepared.valid.targets)
    is_wrong = len(np.unique(targets[targets >= 0])) > 1
    return f'every prediction is "{next(iter(scores.predicted))}"' if is_wrong else None


def _entropy(targets: np.ndarray) -> float:
    """The loss of a classifier that knows how often each class comes, and nothing else."""
    counts = np.unique(targets, return_counts=True)[1]
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def _is_plain_loss(spec: RunSpec) -> bool:
    """Tell whether the training loss is that of the labels alone, without a penalty or a teacher."""
    prune = spec.prune
    method = prune.by if prune.method in UNITS else prune.method
    return spec.distill.teacher is None and method in ("none", "magnitude", "movement")


def versions() -> dict[str, str]:
    """Return the versions that decide what is computed."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "accelerate": accelerate.__version__,
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


def device_name(accelerator: Accelerator) -> str:
    """Name the device that computes."""
    if accelerator.device.type == "cuda":
        return torch.cuda.get_device_name(accelerator.device)
    return f"{processor().architecture} CPU, {torch.get_num_threads()} threads"


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
