"""DeBERTa's bare biases under autocast, in the dtype of what they are added to.

Its attention adds q_bias and v_bias, which stay in float32, to products that autocast makes half as wide, and
then masks the half-wide scores with the least number of the wide query's dtype, which does not fit.
"""

from types import MethodType
from typing import Any, cast

import torch
from torch import Tensor, nn


def set_half_biases_(encoder: nn.Module) -> None:
    """Let every attention with such biases read them in autocast's dtype where autocast is on."""
    for module in encoder.modules():
        if hasattr(module, "q_bias") and hasattr(type(module), "transpose_for_scores"):
            cast(Any, module).transpose_for_scores = MethodType(_split_heads, module)


def _split_heads(attention: nn.Module, x: Tensor) -> Tensor:
    """Return (B, T, heads · D) as (B, heads, T, D), as the attention's own method does."""
    device = x.device.type
    if torch.is_autocast_enabled(device):
        x = x.to(torch.get_autocast_dtype(device))
    return cast(Tensor, cast(Any, type(attention)).transpose_for_scores(attention, x))
