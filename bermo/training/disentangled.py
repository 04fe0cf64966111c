"""The fused forward of attention to contents and to distances, as DeBERTa's (both versions) is.

    s_ij = scale · (q_i · k_j + q_i · A_m + k_j · B_m)     m = T + j − i: a row for each distance i − j

A and B are two products with a row for each of the 2T distances that a text has; where several distances
share a row of the table, it is read for each of them. One kernel computes the scores and the attention from
them (bermo.nn.fast.relative). Heads that are too wide for it, and matrices of which a step has no copies,
take torch's own attention, which adds a bias to q kᵀ and gives it a gradient: two products over all texts,
and one pass that moves their scores to pairs of tokens and hides padding (bermo.nn.fast.shear).

Dropout of the table is drawn in each layer, as the module does; where each distance has a row of its own, of
the rows that are read alone. Axes: B texts, T tokens, H heads, D units of a head, M = 2T distances, W width.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from bermo.training.fusible import argument_names, has_hooks
from bermo.training.parts import Parts, attend, is_copy, product_of, relate, visible_in_tiles


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

    number = parts.next_seed()

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
        rows = _rows(module, parts, cast(Tensor, relative_pos), rel_embeddings)
        if _can_relate(module, parts, hidden_states):
            sees = parts.keep(attention_mask, lambda: visible_in_tiles(attention_mask != 0))
            return _related(module, parts, hidden_states, rows, sees, number).flatten(2), None
        sees = parts.keep(attention_mask, lambda: attention_mask != 0)
        return _biased(module, parts, hidden_states, rows, sees).flatten(2), None

    return forward


def _can_relate(module: Any, parts: Parts, x: Tensor) -> bool:
    """Tell whether one kernel can compute scores and attention, from products of the step's copies."""
    from bermo.nn.fast.relative import can_relate

    shape = (x.shape[0], module.num_attention_heads, x.shape[1], module.attention_head_size)
    if not can_relate(x.device, parts.dtype, shape):
        return False
    if hasattr(module, "query_proj"):
        return all(map(parts.reads_copies, _projections(module)))
    return is_copy(parts, module.in_proj.weight)


def _projections(module: Any) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
    return module.query_proj, module.key_proj, module.value_proj


def _related(module: Any, parts: Parts, x: Tensor, rows: Tensor, sees: Tensor, number: int) -> Tensor:
    """The attention (B, T, H, D) by one kernel, from one product of the tokens and two of the distances."""
    from bermo.nn.fast.joined import Layout

    if hasattr(module, "query_proj"):
        axes, layout = (3, module.num_attention_heads), Layout(part=2, text=0, head=3, token=1)
        joined, bias, tables = _joined(module, parts, x, rows)
    else:
        # One matrix, head by head.
        axes, layout = (module.num_attention_heads, 3), Layout(part=3, text=0, head=2, token=1)
        bias = _bare_bias(module)
        joined = product_of(parts, parts.cast(x), module.in_proj.weight, bias.detach().to(parts.dtype))
        tables = _tables(module, parts, rows)
    size = module.attention_head_size
    first, second = (table.view(-1, module.num_attention_heads, size) for table in tables)
    joined = joined.view(*x.shape[:2], *axes, size)
    scale = (3 * size) ** -0.5
    return relate(module, parts, number, joined, first, second, sees, scale=scale, layout=layout, bias=bias)


def _joined(
    module: Any, parts: Parts, x: Tensor, rows: Tensor
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Queries, keys and values as one product, its bias, and the tables A and B."""
    from bermo.nn.fast.joined import joined_table, side_by_side

    weights = [linear.weight for linear in _projections(module)]
    weight = side_by_side(weights)
    bias = side_by_side([linear.bias for linear in _projections(module)])
    if not getattr(module, "share_att_key", False):
        joined = product_of(parts, parts.cast(x), weight, bias.detach(), weights)
        return joined, bias, _tables(module, parts, rows)
    target = parts.grad_buffer(weights)
    joined, first, second = joined_table(parts.cast(x), weight, bias, target, rows)
    return joined, bias, (first, second)


def _tables(module: Any, parts: Parts, rows: Tensor) -> tuple[Tensor, Tensor]:
    """A and B of layers of their own."""
    first, second = cast(tuple[nn.Linear, nn.Linear], _position_layers(module))
    return product_of(parts, rows, first.weight, first.bias), product_of(
        parts, rows, second.weight, second.bias
    )


def _bare_bias(module: Any) -> Tensor:
    """The bias of queries and of values, with that of keys, which is zero, head by head."""
    heads = module.num_attention_heads
    q_bias, v_bias = (bias.view(heads, -1) for bias in (module.q_bias, module.v_bias))
    return torch.stack([q_bias, torch.zeros_like(q_bias), v_bias], 1).flatten()


def _biased(module: Any, parts: Parts, x: Tensor, rows: Tensor, sees: Tensor) -> Tensor:
    """The attention (B, T, H, D) by torch's own, with scores of distances as a bias."""
    from bermo.nn.fast.shear import shear

    q, k, v = _content(module, parts, x)
    first, second = cast(tuple[nn.Linear, nn.Linear], _position_layers(module))
    scale = (3 * module.attention_head_size) ** -0.5
    tables = _by_distance(q, _linear(rows, first)), _by_distance(k, _linear(rows, second))
    return attend(module, (q, k, v), shear(*tables, sees, scale), scale)


def _content(module: Any, parts: Parts, x: Tensor) -> Sequence[Tensor]:
    """q, k and v (B, T, H, D)."""
    shape = (*x.shape[:-1], module.num_attention_heads, -1)
    if hasattr(module, "query_proj"):
        found = parts.project(x, _projections(module))
        return [part.view(*shape[:-1], part.shape[-1] // shape[-2]) for part in found]
    joined = functional.linear(parts.cast(x), module.in_proj.weight, _bare_bias(module).to(parts.dtype))
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
