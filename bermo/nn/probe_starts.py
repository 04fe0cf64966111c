"""What frozen vectors and probes are before training: standardised, and started near the solution."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from bermo.nn.probe_kinds import LinearProbes, MixProbes
from bermo.nn.probes import EVAL_ROWS, LabelledVectors

SMALL = 1e-4
RIDGE = 0.1
"""Added to the variances of standardised vectors, so that a few rows a class are enough."""
LARGEST = 1e3
"""Deviations at which a value is clamped: a unit almost constant in training would overflow float16."""


@torch.no_grad()
def start_at_means_(probes: LinearProbes | MixProbes, train: LabelledVectors) -> None:
    """Start at the solution of linear discriminant analysis; a mix at that of the layers' mean.

    With hundreds of classes a start at zero is far from the solution when a layer stops getting better on
    dev.
    """
    x_LND = train.x_LND
    if isinstance(probes, MixProbes):
        weight_DC, bias_C = _discriminant(train, probes.linear, lambda b: x_LND[:, b].float().mean(0))
        probes.linear.weight[0], probes.linear.bias[0] = weight_DC[:, None], bias_C
        return
    for layer in range(len(x_LND)):
        weight_DC, bias_C = _discriminant(train, probes, lambda b, x=x_LND[layer]: x[b].float())  # type: ignore[misc]
        probes.weight[layer], probes.bias[layer] = weight_DC[:, None], bias_C


def _discriminant(
    train: LabelledVectors, probes: LinearProbes, read: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """Return w_c = Σ⁻¹ μ_c and b_c = log π_c − ½ μ_c·w_c; Σ: covariance within the classes, plus a ridge."""
    _, units, _, classes = probes.weight.shape
    labels_N, count = train.labels_N, len(train.labels_N)
    counts_C = labels_N.bincount(minlength=classes).float()
    within_DD = torch.eye(units, device=labels_N.device) * RIDGE * count
    means_CD = torch.zeros(classes, units, device=labels_N.device)
    for rows in torch.arange(count, device=labels_N.device).split(EVAL_ROWS):
        x_BD = read(rows)
        within_DD += x_BD.T @ x_BD
        means_CD.index_add_(0, labels_N[rows], x_BD)
    means_CD /= counts_C.clamp(min=1)[:, None]
    within_DD -= (means_CD * counts_C[:, None]).T @ means_CD
    weight_DC = torch.linalg.solve(within_DD / count, means_CD.T)
    priors_C = (counts_C + 1) / (count + classes)
    return weight_DC, priors_C.log() - (means_CD.T * weight_DC).sum(0) / 2


def standardise_(parts: Sequence[Tensor]) -> None:
    """Turn x into (x − mean) / deviation of the first part, for each layer and unit, in place.

    Some rows at a time: they stay in the processor's cache, and the vectors are never copied whole.
    """
    for layer in range(len(parts[0])):
        mean_D, deviation_D = _moments(parts[0][layer])
        factor_D = (deviation_D + SMALL).reciprocal()
        for x_LND in parts:
            for rows_BD in x_LND[layer].split(EVAL_ROWS):
                rows_BD.copy_(rows_BD.float().sub_(mean_D).mul_(factor_D).clamp_(-LARGEST, LARGEST))


def _moments(x_ND: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and the deviation of each unit over the rows."""
    parts = x_ND.split(EVAL_ROWS)
    mean_D = torch.stack([rows.sum(0, dtype=torch.float32) for rows in parts]).sum(0) / len(x_ND)
    squares = [rows.float().sub_(mean_D).square_().sum(0) for rows in parts]
    return mean_D, (torch.stack(squares).sum(0) / len(x_ND)).sqrt()
