"""What an encoder makes of the distances between tokens, for one model or for a stack of models.

A CUDA graph cannot hold a copy from the CPU. MPNet looks up one number for each head and distance; some
versions of transformers compute the distances on the CPU, and none knows of a stack, whose table holds N
tables. XLNet makes the waves of its distances anew in each pass, and DeBERTa v2 the groups of its distances,
both from a number on the CPU; they never change, so they are kept.
"""

from collections.abc import Callable
from functools import cache
from types import MethodType
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional


def set_position_bias_(model: nn.Module) -> None:
    """Let every encoder inside that computes such a bias do so on its own device, stacked or not."""
    for module in model.modules():
        if hasattr(type(module), "compute_position_bias"):
            cast(Any, module).compute_position_bias = MethodType(_position_bias, module)
        if hasattr(type(module), "relative_positional_encoding"):
            cast(Any, module).relative_positional_encoding = _kept_waves(module)
        if hasattr(type(module), "get_rel_pos"):
            cast(Any, module).get_rel_pos = _kept_distances(cast(Any, module))


def _for_training_too(make: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function so that what it makes in inference mode can be kept for a training step."""
    return torch.inference_mode(False)(make)


def _kept_waves(encoder: nn.Module) -> Callable[..., Tensor]:
    """Return XLNet's own function of lengths, which makes the waves of each once, where the weights lie: some
    versions of transformers make them on the CPU.
    """
    make = MethodType(cast(Any, type(encoder)).relative_positional_encoding, encoder)

    @cache
    def made(place: torch.device, *lengths: Any, **more: Any) -> Tensor:
        return cast(Tensor, make(*lengths, **more)).to(place)

    kept = _for_training_too(made)
    return lambda *lengths, **more: kept(next(encoder.parameters()).device, *lengths, **more)


def _kept_distances(encoder: Any) -> Callable[..., Tensor | None]:
    """Return DeBERTa's own function of hidden states, which makes the distances of each length once."""
    make = _for_training_too(MethodType(type(encoder).get_rel_pos, encoder))
    kept: dict[tuple[int, torch.device], Tensor | None] = {}

    def distances(x: Tensor, queries: Tensor | None = None, given: Tensor | None = None) -> Tensor | None:
        if queries is not None or given is not None:
            return cast(Tensor | None, make(x, queries, given))
        key = x.shape[-2], x.device
        if key not in kept:
            kept[key] = make(x)
        return kept[key]

    return distances


def _position_bias(encoder: nn.Module, x: Tensor) -> Tensor:
    """Return the bias (rows, H, T, T) of hidden states (rows, T, D); a stack's rows lie model by model."""
    num_rows, num_tokens = x.shape[:2]
    positions = torch.arange(num_tokens, device=x.device)
    distances_TT = positions[None, :] - positions[:, None]
    buckets_TT = cast(Any, encoder).relative_position_bucket(distances_TT)
    table = cast(Tensor, cast(Any, encoder).relative_attention_bias.weight)
    tables_NSH = table.view(-1, *table.shape[-2:])
    count, size, num_heads = tables_NSH.shape
    values = functional.embedding(buckets_TT, tables_NSH.transpose(0, 1).reshape(size, -1))
    # Row by row: torch's fast attention takes no mask whose last axis has another stride than 1.
    bias_NHTT = values.view(num_tokens, num_tokens, count, num_heads).permute(2, 3, 0, 1).contiguous()
    shape = (count, num_rows // count, num_heads, num_tokens, num_tokens)
    return bias_NHTT[:, None].expand(shape).flatten(0, 1)
