"""Attention over long texts for encoders with windows (ModernBERT), in memory linear in their length.

transformers gives such an encoder a mask (B, 1, T, T) for layers that see all tokens, and another one for
those that see the tokens in a window. Both its masks and its attention go through a registry: under the name
here, the mask of a long text is what its queries can see (bermo.nn.fast.long), from which attention is
computed without a mask of all pairs. Short texts, and models that are traced, get what "sdpa" gives them.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from bermo.nn.fast.long import SHORTEST, Sight, attend_long, look

NAME = "bermo_windows"


def set_windows_(encoder: nn.Module) -> None:
    """Let an encoder whose layers have windows attend so, if it would attend by torch's function."""
    config = cast(Any, encoder).config
    if getattr(config, "sliding_window", None) is not None and config._attn_implementation == "sdpa":
        config._attn_implementation = NAME


def _mask(**options: Any) -> Tensor | Sight | None:
    """What the queries of a batch can see, as transformers asks for it."""
    given, window = options["attention_mask"], options.get("local_size")
    is_traced = torch.jit.is_tracing() or torch.compiler.is_compiling()
    if is_traced or options["use_vmap"] or options["kv_length"] < SHORTEST:
        return sdpa_mask(**options)
    if given is None:
        given = torch.ones(
            options["batch_size"], options["kv_length"], dtype=torch.bool, device=options["device"]
        )
    return look(given, window)


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | Sight | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attention as the registry asks for it: the output (B, T, H, D)."""
    if not isinstance(attention_mask, Sight):
        given = (module, query, key, value, attention_mask)
        return sdpa_attention_forward(*given, scaling=scaling, dropout=dropout, **options)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return attend_long(query, key, value, attention_mask, dropout, scale).transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, cast(Callable[..., Any], _attend))
AttentionMaskInterface.register(NAME, cast(Callable[..., Any], _mask))
