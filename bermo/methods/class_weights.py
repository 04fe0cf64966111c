"""How much each class counts in the loss, so that a rare one is not drowned.

    classes, tags   w_c = N / (C · N_c) where balanced: every class adds as much as any other; a row's loss is
                    multiplied by the weight of its class, and weights are scaled so that their mean over the
                    training rows (or labelled words) is 1: the rate keeps its meaning
    labels          w_c = (N − N_c) / N_c where balanced: the loss of rows that have the label is multiplied

N_c is how many of the N training rows have class c of C.
"""

import math

import numpy as np
import torch
from torch import Tensor

from bermo.data.features import Features
from bermo.data.tasks import Kind, TaskData
from bermo.errors import BermoError, nearest
from bermo.nn.heads import IGNORED

BALANCED = "balanced"
WEIGHTED: tuple[Kind, ...] = ("classification", "multi-label", "tagging")
FORM = "Write balanced, or name=weight for some classes, such as bad=1,good=3."


def check_class_weights(asked: str | None, data: TaskData) -> None:
    """Refuse weights of what has no classes, of unknown classes, or that are no positive number."""
    if asked is None:
        return
    if data.task.kind not in WEIGHTED:
        raise BermoError(f"--class-weights are of classes, not of {data.task.kind}. Leave them out.")
    if asked != BALANCED:
        for name in _named(asked):
            if name not in data.labels:
                known = ", ".join(data.labels[:6])
                raise BermoError(
                    f'--class-weights names the class "{name}", but the classes are {known}.'
                    f"{nearest(name, data.labels)}"
                )


def class_weights(asked: str | None, features: Features) -> Tensor | None:
    """Return the weight of each class by the training rows, (C,); None where all count alike."""
    if asked is None:
        return None
    counts_C, total = _counts(features)
    if features.task.kind == "multi-label":
        balanced_C = (total - counts_C) / counts_C.clip(1)
    else:
        balanced_C = total / (len(counts_C) * counts_C.clip(1))
    if asked == BALANCED:
        weights_C = balanced_C
    else:
        named = _named(asked)
        weights_C = np.array([named.get(label, 1.0) for label in features.labels])
    if features.task.kind != "multi-label":
        weights_C = weights_C * total / (weights_C * counts_C).sum()
    return torch.from_numpy(weights_C).float()


def _counts(features: Features) -> tuple[np.ndarray, int]:
    """Return how many rows (or labelled words) each class has, and how many there are."""
    targets = np.asarray(features.targets)
    if features.task.kind == "multi-label":
        return targets.astype(np.float64).sum(0), len(targets)
    flat = targets[targets != IGNORED]
    return np.bincount(flat, minlength=len(features.labels)).astype(np.float64), len(flat)


def _named(asked: str) -> dict[str, float]:
    weights: dict[str, float] = {}
    for part in asked.split(","):
        name, is_given, value = part.rpartition("=")
        if not is_given:
            raise BermoError(f'--class-weights has "{part}", which has no =. {FORM}')
        try:
            weight = float(value)
        except ValueError:
            raise BermoError(f'--class-weights: "{value}" of {name} is not a number. {FORM}') from None
        if not (weight > 0 and math.isfinite(weight)):
            raise BermoError(f"--class-weights: the weight of {name} is {value}, but it must be over 0.")
        weights[name.strip()] = weight
    return weights
