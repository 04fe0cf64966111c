"""The fused forward of attention to contents and to distances, as DeBERTa's (both versions) is.

    s_ij = scale · (q_i · k_j + q_i · A_m + k_j · B_m)     m = T + j − i: a row for each distance i − j

A and B are two products with a row for each of the 2T distances that a text has, made for all layers at once;
where several distances share a row of the table, it is read for each of them, layer by layer. One kernel
computes the scores and the attention from them (bermo.nn.fast.relative). Heads that are too wide for it, and
matrices of which a step has no copies, take torch's own attention, which adds a bias to q kᵀ and gives it a
gradient: two products over all texts, and one pass that moves their scores to pairs of tokens and hides
padding (bermo.nn.fast.shear).

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


class DisentangledLayers:
    """The fused forwards of the modules of a model that are `is_disentangled`.

    Where they read the same rows of the table, one product makes the tables A and B of all of them.
    """

    def __init__(self) -> None:
        self.modules: list[Any] = []

    def forward_of(self, module: Any, parts: Parts) -> Callable[..., tuple[Tensor, None]] | None:
        """Return the fused forward of a module that `is_disentangled`, of others None."""
        if not is_disentangled(module):
            return None
        number = parts.next_seed()
        self.modules.append(module)

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
            distances = cast(Tensor, relative_pos), rel_embeddings
            if _can_relate(module, parts, hidden_states):
                sees = parts.keep(attention_mask, lambda: visible_in_tiles(attention_mask != 0))
                tables = self._tables(module, parts, hidden_states, *distances)
                bias = None if hasattr(module, "query_proj") else self._bare_bias(module, parts)
                return _related(module, parts, hidden_states, tables, bias, sees, number).flatten(2), None
            sees = parts.keep(attention_mask, lambda: attention_mask != 0)
            rows = _rows(module, parts, *distances)
            return _biased(module, parts, hidden_states, rows, sees).flatten(2), None

        return forward

    def _tables(self, module: Any, parts: Parts, x: Tensor, relative_pos: Tensor, table: Tensor) -> Any:
        """What the layer makes of the table's rows (bermo.nn.fast.joined.TablesOfLayer)."""
        if relative_pos.shape[-1] > _last_distinct(module):
            # Dropout comes before the rows are repeated.
            return _tables_of([module], parts, _rows(module, parts, relative_pos, table)[None])[0]
        rows = _shared_rows(module, parts, relative_pos, table)
        alike = [one for one in self.modules if _is_alike(one, module) and _can_relate(one, parts, x)]

        def make() -> dict[int, Any]:
            dropped = module.pos_dropout(rows.expand(len(alike), *rows.shape))
            made = _tables_of(alike, parts, dropped)
            return {id(one): tables for one, tables in zip(alike, made, strict=True)}

        return parts.keep(rows, make)[id(module)]

    def _bare_bias(self, module: Any, parts: Parts) -> tuple[Tensor, Tensor]:
        """The bias of a layer's one product, and in the working dtype, made for all layers at once."""
        shape = module.q_bias.shape
        alike = [one for one in self.modules if hasattr(one, "q_bias") and one.q_bias.shape == shape]

        def make() -> dict[int, tuple[Tensor, Tensor]]:
            wide = _bare_biases(alike)
            both = zip(wide.unbind(), wide.detach().to(parts.dtype).unbind(), strict=True)
            return dict(zip(map(id, alike), both, strict=True))

        found: tuple[Tensor, Tensor] = parts.keep(alike[0].q_bias, make)[id(module)]
        return found


def _is_alike(one: Any, other: Any) -> bool:
    """Tell whether two modules have matrices of one shape, and one chance of dropout."""
    shapes = [[linear.weight.shape for linear in _table_layers(module)] for module in (one, other)]
    chances = {(module.pos_dropout.p, module.pos_dropout.training) for module in (one, other)}
    return shapes[0] == shapes[1] and len(chances) == 1


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


def _related(
    module: Any,
    parts: Parts,
    x: Tensor,
    tables: Any,
    bare_bias: tuple[Tensor, Tensor] | None,
    sees: Tensor,
    number: int,
) -> Tensor:
    """The attention (B, T, H, D) by one kernel, from one product of the tokens and the tables."""
    from bermo.nn.fast.joined import Layout, side_by_side

    if bare_bias is None:
        axes, layout = (3, module.num_attention_heads), Layout(part=2, text=0, head=3, token=1)
        weights = [linear.weight for linear in _projections(module)]
        weight, bias = tables.weight, tables.bias
        if not _is_shared(module):
            weight = side_by_side(weights)
            bias = side_by_side([linear.bias for linear in _projections(module)])
        joined = product_of(parts, parts.cast(x), weight, bias.detach(), weights)
    else:
        # One matrix, head by head.
        axes, layout = (module.num_attention_heads, 3), Layout(part=3, text=0, head=2, token=1)
        bias, half_bias = bare_bias
        joined = product_of(parts, parts.cast(x), module.in_proj.weight, half_bias)
    size = module.attention_head_size
    # The queries' matrix makes B, which keys read.
    both = (tables.right, tables.left) if _is_shared(module) else (tables.left, tables.right)
    first, second = (table.view(-1, module.num_attention_heads, size) for table in both)
    joined = joined.view(*x.shape[:2], *axes, size)
    scale = (3 * size) ** -0.5
    return relate(module, parts, number, joined, first, second, sees, scale=scale, layout=layout, bias=bias)


def _is_shared(module: Any) -> bool:
    """Tell whether the matrices of queries and keys make the tables, too."""
    return bool(getattr(module, "share_att_key", False))


def _table_layers(module: Any) -> Sequence[nn.Linear]:
    """The layers whose matrices, one below the other, begin with those of the tables."""
    return _projections(module) if _is_shared(module) else cast(Any, _position_layers(module))


def _tables_of(modules: Sequence[Any], parts: Parts, rows: Tensor) -> list[Any]:
    """Both tables of each layer, from its rows (N, M, width), and the matrices that made them."""
    from bermo.nn.fast.joined import side_by_side, tables

    layers = [_table_layers(module) for module in modules]
    weights = [[linear.weight for linear in linears] for linears in layers]
    biases = [[linear.bias for linear in linears if linear.bias is not None] for linears in layers]
    # Who reads such a matrix too takes the buffer of its gradient.
    targets = [None if _is_shared(modules[0]) else parts.grad_buffer(own) for own in weights]
    joined = [side_by_side(own) for own in biases if own]
    height = 2 * len(weights[0][0])
    return tables(rows, height, [side_by_side(own) for own in weights], joined, targets)


def _bare_biases(modules: Sequence[Any]) -> Tensor:
    """The biases of queries and of values, with that of keys, which is zero, head by head: a row a layer."""
    shape = (len(modules), modules[0].num_attention_heads, -1)
    q_bias = torch.stack([module.q_bias for module in modules]).view(shape)
    v_bias = torch.stack([module.v_bias for module in modules]).view(shape)
    return torch.stack([q_bias, torch.zeros_like(q_bias), v_bias], 2).flatten(1)


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
    joined = functional.linear(
        parts.cast(x), module.in_proj.weight, _bare_biases([module])[0].to(parts.dtype)
    )
    return joined.view(*shape[:-1], 3, joined.shape[-1] // (3 * shape[-2])).unbind(3)


def _rows(module: Any, parts: Parts, relative_pos: Tensor, table: Tensor) -> Tensor:
    """The table's row of each distance (M, width), with dropout."""
    if relative_pos.shape[-1] <= _last_distinct(module):
        return module.pos_dropout(_shared_rows(module, parts, relative_pos, table))
    index = parts.keep(relative_pos, lambda: _index(module, relative_pos))
    return module.pos_dropout(table).index_select(0, index).to(parts.dtype)


def _shared_rows(module: Any, parts: Parts, relative_pos: Tensor, table: Tensor) -> Tensor:
    """The same of a table in which each distance has a row of its own, before dropout, once in a pass."""
    index = parts.keep(relative_pos, lambda: _index(module, relative_pos))
    return parts.keep(table, lambda: table.index_select(0, index).to(parts.dtype))


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
