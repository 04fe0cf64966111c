"""Formulas of the step: rates, parameter groups, looks, the seed of a step's random numbers, the pruning schedule."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import nn

from bermo.spec import TrainSpec


def num_steps(num_batches: int, epochs: float) -> int:
    """Optimiser steps of a training over so many batches an epoch."""
    return max(1, math.ceil(epochs * num_batches))


def parameter_groups(
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
            key = (rate_of.get(id(parameter), settings.lr), decay)
            groups.setdefault(key, []).append(parameter)
    return [
        {"params": parameters, "lr": rate, "peak_lr": rate, "weight_decay": decay}
        for (rate, decay), parameters in groups.items()
    ]


def rate_factor(step: int, total: int, warmup: float) -> float:
    """Linear warm-up to 1 over the first share of the steps, then linear decay to 0 at the end."""
    rising = warmup * total
    return (step + 1) / (rising + 1) if step < rising else (total - step) / max(1.0, total - rising)


def look_steps(per_epoch: int, total: int, evaluations: int) -> list[int]:
    """The steps after which the validation set is looked at: evenly in each epoch, and at the end."""
    num_looks = math.ceil(total / per_epoch * evaluations)
    marks = (math.ceil((k + 1) * per_epoch / evaluations) for k in range(num_looks))
    return sorted({min(mark, total) for mark in marks} | {total})


def seed_step(seed: int, step: int, rank: int) -> None:
    """Seed every generator of torch from (seed, step, process), so that no generator state is ever saved."""
    sequence = np.random.SeedSequence([seed, step, rank])
    number = int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))
    card = torch.accelerator.current_accelerator()
    if card is not None and card.type != "cuda":
        torch.manual_seed(number)
        return
    # torch.manual_seed writes down the call stack for each kind of device that is not in use: 0.25 ms of every step.
    for generator in (torch.default_generator, *torch.cuda.default_generators):
        generator.manual_seed(number)
