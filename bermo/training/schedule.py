"""Formulas of the step: rates, parameter groups, when to evaluate, the seed of a step's random numbers."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import nn

from bermo.spec import TrainSpec, chosen

MOST_EVALUATIONS = 12
"""Of a training that does not say how many it wants: one an epoch, but few rows have many short epochs."""


def num_steps(num_batches: int, epochs: float) -> int:
    """Return the optimiser steps of a training, from the batches in an epoch."""
    return max(1, math.ceil(epochs * num_batches))


def rate_groups(
    model: nn.Module, settings: TrainSpec, fast: Iterable[tuple[Iterable[nn.Parameter], float]] = ()
) -> list[dict[str, Any]]:
    """Split weights into fast ones with rates of their own (undecayed), decayed ones, and undecayed vectors.

    `fast` pairs parameters with their rate; biases and norms are the vectors.
    """
    rate_of = {id(parameter): rate for parameters, rate in fast for parameter in parameters}
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for parameter in model.parameters():
        if parameter.requires_grad:
            decay = 0.0 if id(parameter) in rate_of or parameter.ndim <= 1 else settings.weight_decay
            key = (rate_of.get(id(parameter), chosen(settings.lr)), decay)
            groups.setdefault(key, []).append(parameter)
    return [
        {"params": parameters, "lr": rate, "peak_lr": rate, "weight_decay": decay}
        for (rate, decay), parameters in groups.items()
    ]


def rate_factor(step: int, total: int, warmup: float) -> float:
    """Return the factor of the rate: a linear warm-up to 1 over the first steps, then a linear decay to 0."""
    rising = warmup * total
    return (step + 1) / (rising + 1) if step < rising else (total - step) / max(1.0, total - rising)


def evaluation_steps(per_epoch: int, total: int, evaluations: int | None) -> list[int]:
    """Return the steps after which the validation set is scored: evenly in each epoch, and at the end.

    With None that is after each epoch or, where there are more than 12, after each twelfth of the training.
    """
    if evaluations is None:
        num_evaluations = min(MOST_EVALUATIONS, math.ceil(total / per_epoch))
        step = max(per_epoch, total / num_evaluations)
        return sorted({min(math.ceil((k + 1) * step), total) for k in range(num_evaluations)})
    num_evaluations = math.ceil(total / per_epoch * evaluations)
    marks = (math.ceil((k + 1) * per_epoch / evaluations) for k in range(num_evaluations))
    return sorted({min(mark, total) for mark in marks} | {total})


def seed_step(seed: int, step: int, rank: int) -> None:
    """Seed every generator of torch from (seed, step, process), so that no generator state is ever saved."""
    sequence = np.random.SeedSequence([seed, step, rank])
    number = int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))
    device = torch.accelerator.current_accelerator()
    if device is not None and device.type != "cuda":
        torch.manual_seed(number)
        return
    # torch.manual_seed records the call stack for each kind of unused device, 0.25 ms in every step.
    for generator in (torch.default_generator, *torch.cuda.default_generators):
        generator.manual_seed(number)
