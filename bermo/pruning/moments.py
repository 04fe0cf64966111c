"""The second moments that AdamW keeps of scores: E[(G ⊙ W)²], how much the loss feels each weight.

A score's gradient is G ⊙ W, the first-order change of the loss if the weight went. Its mean square over the
last thousand steps is what AdamW divides by, and a measure of the weight's importance (a diagonal Fisher
information times W²) for nothing.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bermo.errors import BermoError
from bermo.nn.adam_state import SECOND, start_optimizer_


def second_moments(
    optimizer: Optimizer, scores: Sequence[nn.Parameter], num_models: int = 1
) -> dict[int, Tensor]:
    """Return the second moments of scores by the scores' addresses; of stacked ones, those of each model."""
    if not isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW):
        raise BermoError(
            f"Movement by sensitivity reads the second moments of Adam or AdamW, but got"
            f' {type(optimizer).__name__}. Choose one of them, or rank="size".'
        )
    start_optimizer_(optimizer, scores)
    moments: dict[int, Tensor] = {}
    for parameter in scores:
        moment = optimizer.state[parameter][SECOND]
        if num_models == 1:
            moments[parameter.data_ptr()] = moment
            continue
        for own, values in zip(parameter.data, moment, strict=True):
            moments[own.data_ptr()] = values
    return moments
