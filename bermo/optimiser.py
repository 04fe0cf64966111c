"""AdamW as the step needs it: in one pass, and on a graphics card with its numbers where a captured step reads them."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bermo.job import Job


def make_optimizer(job: Job, device: torch.device) -> torch.optim.AdamW:
    """AdamW in one pass; on a graphics card its rates and step numbers lie there, for captured steps to read."""
    if device.type != "cuda":
        return torch.optim.AdamW(job.groups, eps=1e-8, fused=device.type == "cpu")
    groups = [group | {"lr": torch.tensor(group["lr"], device=device)} for group in job.groups]
    rate = torch.tensor(0.0, device=device)
    return torch.optim.AdamW(groups, lr=rate, eps=1e-8, fused=True, capturable=True)


def set_rate_(group: dict[str, Any], rate: float) -> None:
    """Give a parameter group its rate, in place where it lies on a graphics card."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


@torch.no_grad()
def start_optimizer_(optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter]) -> None:
    """Make the optimiser's state now: what is made inside a capture would be made anew by each replay."""
    for parameter in parameters:
        if parameter in optimizer.state:
            continue
        optimizer.state[parameter] = {
            "step": torch.zeros((), device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
