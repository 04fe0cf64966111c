"""The fused forward of attention to contents and to distances, as DeBERTa's (both versions) is.

    s_ij = scale · (q_i · k_j + q_i · A_m + k_j · B_m)     m = T + j − i: a row for each distance i − j

torch's own attention adds a bias to q kᵀ and gives it a gradient. The bias is made of two products over all
texts at once, with a row for each of the 2T distances that a text has, and of one pass that moves their
scores to pairs of tokens and hides padding (bermo.nn.fast.shear). Where several distances share a row of the
table, it is read for each of them.

Dropout of the table is drawn in each layer, as the module does; where each distance has a row of its own, of
the rows that are read alone. Axes: B texts, T tokens, H heads, D units of a head, M = 2T distances, W width.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from bermo.training.fusible import argument_names, has_hooks
from bermo.training.parts import Parts, attend


def is_disentangled(module: nn.Module) -> bool:
    """Tell whether a module's scores are content and distances, both ways, as DeBERTa's are."""
    types = getattr(module, "pos_att_type", None)
    return (
        isinstance(types, list)
        and sorted(types) == ["c2p", "p2c"]
        and bool(getattr(module, "relative_attention", False))
        and getattr(module, "head_logits_proj", None) is None
        and argument_names(module) == ["hidden_states", "attention_mask", *_OPTIONS]
        and _position_layers(module) is not None
        and (hasattr(module, "in_proj") or hasattr(module, "query_proj"))
        and not any(has_hooks(child) for child in module.children())
    )


_OPTIONS = ["output_attentions", "query_states", "relative_pos", "rel_embeddings"]


def _position_layers(module: Any) -> tuple[nn.Linear, nn.Linear] | None:
    """The layers that make A (read by queries) and B (read by keys) of the table's rows."""
    pairs = [("pos_proj", "pos_q_proj"), ("pos_key_proj", "pos_query_proj")]
    if getattr(module, "share_att_key", False):
        pairs = [("key_proj", "query_proj")]
    for names in pairs:
        first, second = (getattr(module, name, None) for name in names)
        if isinstance(first, nn.Linear) and isinstance(second, nn.Linear):
            return first, second
    return None


def disentangled(module: Any, parts: Parts) -> Callable[..., tuple[Tensor, None]] | None:
    """Return the fused forward of a module that `is_disentangled`, of others None."""
    if not is_disentangled(module):
        return None

    def forward(
        hidden_states: Tensor,
        attention_mask: Tensor,
        output_attentions: bool = False,
        query_states: Tensor | None = None,
        relative_pos: Tensor | None = None,
        rel_embeddings: Tensor | None = None,
    ) -> tuple[Tensor, None]:
        is_usual = query_states is None and relative_pos is not None and relative_pos.dim() == 3
        if output_attentions or not is_usual or attention_mask.dim() != 4 or rel_embeddings is None:
            given = (output_attentions, query_states, relative_pos, rel_embeddings)
            own = type(module).forward(module, hidden_states, attention_mask, *given)
            return cast(tuple[Tensor, None], own)
        from bermo.nn.fast.shear import shear

        q, k, v = _content(module, parts, hidden_states)
        rows = _rows(module, parts, cast(Tensor, relative_pos), rel_embeddings)
        first, second = cast(tuple[nn.Linear, nn.Linear], _position_layers(module))
        scale = (3 * module.attention_head_size) ** -0.5
        sees = parts.keep(attention_mask, lambda: attention_mask != 0)
        bias = shear(
            _by_distance(q, _linear(rows, first)), _by_distance(k, _linear(rows, second)), sees, scale
        )
        return attend(module, (q, k, v), bias, scale).flatten(2), None

    return forward


def _content(module: Any, parts: Parts, x: Tensor) -> Sequence[Tensor]:
    """q, k and v (B, T, H, D)."""
    shape = (*x.shape[:-1], module.num_attention_heads, -1)
    if hasattr(module, "query_proj"):
        linears = (module.query_proj, module.key_proj, module.value_proj)
        return [part.view(*shape[:-1], part.shape[-1] // shape[-2]) for part in parts.project(x, linears)]
    # One matrix, head by head; its query and value have a bias each.
    q_bias, v_bias = (bias.view(shape[-2], -1) for bias in (module.q_bias, module.v_bias))
    bias = torch.stack([q_bias, torch.zeros_like(q_bias), v_bias], 1).flatten().to(parts.dtype)
    joined = functional.linear(parts.cast(x), module.in_proj.weight, bias)
    return joined.view(*shape[:-1], 3, joined.shape[-1] // (3 * shape[-2])).unbind(3)


def _rows(module: Any, parts: Parts, relative_pos: Tensor, table: Tensor) -> Tensor:
    """The table's row of each distance (M, width), with dropout."""
    num_tokens = relative_pos.shape[-1]
    index = parts.keep(relative_pos, lambda: _index(module, relative_pos))
    if num_tokens <= _last_distinct(module):
        return module.pos_dropout(parts.keep(table, lambda: table.index_select(0, index).to(parts.dtype)))
    return module.pos_dropout(table).index_select(0, index).to(parts.dtype)


def _index(module: Any, relative_pos: Tensor) -> Tensor:
    """Which row of the table belongs to the distance of each column m; the first column is any."""
    num_tokens = relative_pos.shape[-1]
    down, across = relative_pos[0, :, 0], relative_pos[0, 0]
    distances = torch.cat([down[-1:], down.flip(0), across[1:]]).long()
    if hasattr(module, "pos_ebd_size"):
        return (distances + module.pos_ebd_size).clamp(0, 2 * module.pos_ebd_size - 1)
    size = module.max_relative_positions
    span = min(num_tokens, size)
    return (distances + span).clamp(0, 2 * span - 1) + (size - span)


def _last_distinct(module: Any) -> int:
    """The longest text in which each distance has a row of its own; buckets grow from half of them on."""
    buckets = getattr(module, "position_buckets", 0)
    return buckets // 2 if buckets > 0 else module.max_relative_positions


def _linear(rows: Tensor, layer: nn.Linear) -> Tensor:
    return functional.linear(rows, layer.weight, layer.bias)


def _by_distance(x_BTHD: Tensor, rows_MW: Tensor) -> Tensor:
    """What each token of each head says of each distance, (B, H, T, M)."""
    num_texts, num_tokens, heads, size = x_BTHD.shape
    tokens = x_BTHD.reshape(num_texts * num_tokens, heads, size).transpose(0, 1)
    scores = torch.bmm(tokens, rows_MW.view(-1, heads, size).permute(1, 2, 0))
    return scores.view(heads, num_texts, num_tokens, -1).transpose(0, 1)
