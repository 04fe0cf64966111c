"""AdamW's state of parameters, made before its first step."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.optim import Optimizer

SECOND = "exp_avg_sq"
"""AdamW's name of the mean square of a gradient."""


@torch.no_grad()
def start_optimizer_(optimizer: Optimizer, parameters: Sequence[nn.Parameter]) -> None:
    """Make AdamW's state of these parameters now: inside a capture, each replay would make it anew."""
    for parameter in parameters:
        if parameter in optimizer.state:
            continue
        optimizer.state[parameter] = {
            "step": torch.zeros((), device=_step_device(optimizer, parameter)),
            "exp_avg": torch.zeros_like(parameter),
            SECOND: torch.zeros_like(parameter),
        }


def _step_device(optimizer: Optimizer, parameter: nn.Parameter) -> torch.device:
    """Where AdamW keeps the number of its steps: with the parameter where it is fused or captured."""
    settings = optimizer.defaults
    is_there = settings.get("fused") or settings.get("capturable")
    return parameter.device if is_there else torch.device("cpu")
