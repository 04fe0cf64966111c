"""The length of the labels' code, given the vectors: minimum description length (Voita and Titov 2020).

    online code   n_1 log2 C + Σ_i −log2 p_i(labels of block i + 1)     p_i: a probe trained on blocks 1 … i
    blocks end at 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.25, 12.5, 25, 50 and 100 % of the rows, in a drawn order
    compression   n log2 C / length of the code                         1: the vectors say nothing

A probe that needs many rows to learn pays for them, so that a code tells easy from hard where accuracies are
alike. Penalty and evaluation of each probe are chosen by the loss on the dev part.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from bermo.nn.probe_kinds import Probes
from bermo.nn.probes import LabelledVectors, Settings, fit_probes, label_logs, outputs

EVALUATIONS, RATE = 4, 4.0
"""Ten probes are trained for one code, so each for fewer evaluations, at a rate that starts so many times
higher and falls to 0; any learner gives a code that is right, and a better one a shorter code."""
FRACTIONS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)


def block_ends(num_rows: int) -> list[int]:
    """Return where the blocks of so many rows end; few rows have fewer blocks, none of them empty."""
    return sorted({math.ceil(fraction * num_rows) for fraction in FRACTIONS})


def online_code(
    make: Callable[[], Probes],
    train: LabelledVectors,
    dev: LabelledVectors,
    num_classes: int,
    settings: Settings,
) -> Tensor:
    """Return the bits that code the training labels at each layer, (L)."""
    count = len(train.labels_N)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(settings.seed))
    order = order.to(train.labels_N.device)
    ends = block_ends(count)
    settings = replace(
        settings,
        is_by_loss=True,
        is_falling=True,
        evaluations=min(EVALUATIONS, settings.evaluations),
        rate=RATE * settings.rate,
    )
    bits_L = torch.full((len(train.x_LND),), ends[0] * math.log2(num_classes))
    for begin, end in pairwise(ends):
        probes, known = make(), _rows(train, order[:begin])
        fit = fit_probes(probes, (known, dev, dev), settings)
        bits_L += row_bits(probes, _rows(train, order[begin:end]), fit.penalty_L).sum(1)
    return bits_L


@torch.no_grad()
def row_bits(probes: Probes, part: LabelledVectors, penalty_L: Tensor) -> Tensor:
    """Return −log2 of the probability of each row's label at the chosen penalty of each layer, (L, N)."""
    logs = [chosen(label_logs(*output), penalty_L) for output in outputs(probes, part)]
    return -torch.cat(logs, -1).cpu() / math.log(2)


@torch.no_grad()
def right_rows(probes: Probes, part: LabelledVectors) -> Tensor:
    """Return which rows every probe gets right, (L, P, N)."""
    return torch.cat([logits.argmax(-1) == labels for logits, labels in outputs(probes, part)], -1).cpu()


def chosen(values_LPB: Tensor, penalty_L: Tensor) -> Tensor:
    """Return the values of one penalty of each layer, (L, B)."""
    return values_LPB[torch.arange(len(penalty_L)), penalty_L.to(values_LPB.device)]


def _rows(part: LabelledVectors, rows: Tensor) -> LabelledVectors:
    return LabelledVectors(x_LND=part.x_LND[:, rows], labels_N=part.labels_N[rows])
