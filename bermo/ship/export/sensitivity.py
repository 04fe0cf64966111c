"""Which matrices int8 hurts most: each alone in int8, with its input, and how far the logits move.

Q-BERT (Shen et al. 2020) gives sensitive layers more bits, by the eigenvalues of the Hessian. Here the effect
itself is measured, one forward pass for each matrix, and the worst stay in fp32.
"""

import copy
import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel

from bermo.data.batches import in_order
from bermo.data.features import Features
from bermo.models.quantized import int8_matrices
from bermo.nn.quantizers import Switch
from bermo.ship.export.compare import BATCH, relative_error
from bermo.ship.runtimes.candidate import inputs_of
from bermo.ship.runtimes.torch_candidate import TorchCandidate

NUM_BATCHES = 2
Content = tuple[tuple[int, ...], str]
"""The shape of a matrix and the sum of its bytes: graphs name matrices otherwise than models do."""


@dataclass(frozen=True, kw_only=True)
class Sensitive:
    """A matrix, and how far the logits move where it alone is int8."""

    name: str
    error: float
    contents: tuple[Content, ...]
    """The matrix as it is and turned, since a graph may store either."""


def most_sensitive(model: PreTrainedModel, features: Features, count: int) -> list[Sensitive]:
    """Return so many matrices that int8 hurts most, the worst first."""
    known = measure(model, features) if count else []
    return sorted(known, key=lambda item: -item.error)[:count]


def measure(model: PreTrainedModel, features: Features) -> list[Sensitive]:
    """Return every matrix with the error of the logits where it alone, with its input, is int8."""
    other = copy.deepcopy(model)
    matrices = int8_matrices(other)
    contents = [_contents(matrix.module.weight.detach()) for matrix in matrices]  # type: ignore[operator]
    switches = [Switch() for _ in matrices]
    for matrix, switch in zip(matrices, switches, strict=True):
        matrix.quantize_(switch)
    batches = [inputs_of(features, rows) for rows in in_order(features, BATCH)[:NUM_BATCHES]]
    candidate = TorchCandidate(other)

    def answers() -> list[np.ndarray]:
        return [part for batch in batches for part in candidate(batch)]

    expected, errors = answers(), []
    for switch in switches:
        switch.set_(True)
        errors.append(relative_error(answers(), expected))
        switch.set_(False)
    return [
        Sensitive(name=matrix.name, error=error, contents=content)
        for matrix, error, content in zip(matrices, errors, contents, strict=True)
    ]


def content_of(matrix: np.ndarray) -> Content:
    """Return what tells a matrix from others, whatever it is called."""
    return matrix.shape, hashlib.sha256(np.ascontiguousarray(matrix).tobytes()).hexdigest()


def _contents(weight: torch.Tensor) -> tuple[Content, ...]:
    matrix = weight.float().cpu().numpy()
    return content_of(matrix), content_of(matrix.T)
