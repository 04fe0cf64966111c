"""LAMB (You et al. 2020): Adam whose step on a matrix is as long as the matrix itself, times the rate.

    m, v      the running means of the gradient and of its square, as in Adam
    r         m̂ / (√v̂ + ε) + λ w
    w         ← w − rate · (‖w‖ / ‖r‖) · r      for matrices; the ratio is 1 for biases and norms, and
                                                where one of the norms is 0

A rate that fits all layers alike lets batches be large. The state has AdamW's names, so that checkpoints are
written as ever; nothing waits for the device.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from bermo.nn.adam_state import SECOND, start_optimizer_

EPSILON = 1e-6


class Lamb(Optimizer):
    """Adam with a trust ratio ‖w‖ / ‖r‖ for each matrix."""

    def __init__(self, groups: list[dict[str, Any]], lr: float | Tensor = 0.0) -> None:
        # Step numbers lie with the weights, as in a captured AdamW.
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0, "fused": False, "capturable": True})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every weight that has a gradient."""
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            start_optimizer_(self, weights)
            for weight in weights:
                self._update_(weight, group["lr"], group["weight_decay"])

    def _update_(self, weight: Tensor, rate: float | Tensor, decay: float) -> None:
        state, grad = self.state[weight], weight.grad
        assert grad is not None
        first, second, step = state["exp_avg"], state[SECOND], state["step"]
        step += 1
        first.lerp_(grad, 0.1)
        second.mul_(0.999).addcmul_(grad, grad, value=0.001)
        mean = first / (1 - torch.pow(0.9, step))
        direction = mean / ((second / (1 - torch.pow(0.999, step))).sqrt() + EPSILON)
        if decay:
            direction = direction + decay * weight
        weight.sub_(rate * trust_ratio(weight, direction) * direction)


def trust_ratio(weight: Tensor, direction: Tensor) -> Tensor | float:
    """Return ‖w‖ / ‖r‖ of a matrix, and 1 for a vector or where a norm is 0."""
    if weight.ndim < 2:
        return 1.0
    own, step = (torch.linalg.vector_norm(tensor) for tensor in (weight, direction))
    return torch.where((own > 0) & (step > 0), own / step, 1.0)
