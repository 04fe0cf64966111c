"""Formulas of the step: rates, parameter groups, when to look, and the seed of a step's random numbers."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import nn

from bermo.spec import TrainSpec


def parameter_groups(
    model: nn.Module, fast: Iterable[nn.Parameter], settings: TrainSpec
) -> list[dict[str, Any]]:
    """Split weights into fast ones (undecayed), decayed ones, and undecayed biases and norms (all vectors)."""
    fast_ids = {id(parameter) for parameter in fast}
    slow = [p for p in model.parameters() if p.requires_grad and id(p) not in fast_ids]
    groups = [
        (
            "fast",
            [p for p in model.parameters() if p.requires_grad and id(p) in fast_ids],
            settings.mix_lr,
            0.0,
        ),
        ("decayed", [p for p in slow if p.ndim > 1], settings.lr, settings.weight_decay),
        ("undecayed", [p for p in slow if p.ndim <= 1], settings.lr, 0.0),
    ]
    return [
        {"name": name, "params": parameters, "lr": lr, "peak_lr": lr, "weight_decay": decay}
        for name, parameters, lr, decay in groups
        if parameters
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
    torch.manual_seed(int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1)))
