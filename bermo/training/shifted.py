"""The fused forwards of XLNet's two blocks: attention with rows by distance, and the two layers behind it.

    s_ij = scale · ((q_i + r_w) · k_j + (q_i + r_r) · R_m + (q_i + r_s) · segment_ij)     m = T + j − i

One kernel computes them and the attention (bermo.nn.fast.relative). Where a step has no copies of the
matrices, the first product is torch's own attention, and the others are a bias that it adds
(bermo.nn.fast.shear). Tensors are (T, B, width). Axes: B texts, T tokens, H heads, D units of a
head, M = 2T distances.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from bermo.training.fusible import argument_names, has_hooks
from bermo.training.parts import Parts, attend, is_copy, product_of, relate, visible_in_tiles


def bare_matrices(module: nn.Module) -> tuple[str, ...]:
    """Return which parameters of a module that is no Linear layer are matrices that only products read."""
    return ("q", "k", "v", "o", "r") if hasattr(type(module), "rel_shift_bnij") else ()


def is_shifted(module: nn.Module) -> bool:
    """Tell whether a module is XLNet's attention: bare matrices, rows by distance, and the norm behind."""
    return (
        hasattr(type(module), "rel_shift_bnij")
        and dict(module.named_children()).keys() >= {"layer_norm", "dropout"}
        and all(
            hasattr(module, name) for name in ("q", "k", "v", "o", "r", "r_w_bias", "r_r_bias", "r_s_bias")
        )
        and not any(has_hooks(child) for child in module.children())
    )


def shifted(module: Any, parts: Parts) -> Callable[..., tuple[Any, ...]] | None:
    """Return the fused forward of a module that `is_shifted`, of others None; two streams are its own."""
    if not is_shifted(module):
        return None
    number, inner_number = parts.next_seed(), parts.next_seed()

    def forward(
        h: Tensor,
        g: Tensor | None,
        attn_mask_h: Tensor | None,
        attn_mask_g: Tensor | None,
        r: Tensor,
        seg_mat: Tensor | None,
        mems: Tensor | None = None,
        target_mapping: Tensor | None = None,
        output_attentions: bool = False,
    ) -> tuple[Any, ...]:
        if g is not None or mems is not None or output_attentions or len(r) != 2 * len(h):
            given = (h, g, attn_mask_h, attn_mask_g, r, seg_mat, mems, target_mapping, output_attentions)
            return cast(tuple[Any, ...], type(module).forward(module, *given))
        if _can_relate(module, parts, h):
            out = _related(module, parts, h, r, (attn_mask_h, seg_mat), inner_number)
            return parts.end(module, out, h, number), None
        q, k, v = _heads(module, parts, h)
        bias = _shifted_bias(module, parts, q, r, attn_mask_h)
        if seg_mat is not None:
            bias = bias + _segments(module, parts, q, seg_mat)
        seen = attend(module, [part.transpose(0, 1) for part in (q, k, v)], bias, module.scale)
        joined = seen.transpose(0, 1).flatten(2)
        out = functional.linear(joined, module.o.to(parts.dtype).flatten(1))
        return parts.end(module, out, h, number), None

    return forward


def _can_relate(module: Any, parts: Parts, h: Tensor) -> bool:
    """Tell whether one kernel can compute scores and attention, from products of the step's copies."""
    from bermo.nn.fast.relative import can_relate

    shape = (h.shape[1], module.n_head, h.shape[0], module.d_head)
    matrices = [getattr(module, name) for name in bare_matrices(module)]
    return can_relate(h.device, parts.dtype, shape) and all(is_copy(parts, x) for x in matrices)


def _related(
    module: Any, parts: Parts, h: Tensor, r: Tensor, pairs: tuple[Tensor | None, Tensor | None], number: int
) -> Tensor:
    """The attention's output (T, B, width) by one kernel, from one product of tokens and one of distances."""
    from bermo.nn.fast.joined import Layout, three_bare

    axes = (*h.shape[:2], module.n_head, module.d_head)
    matrices = (module.q, module.k, module.v)
    target = parts.grad_buffer(matrices)
    joined = three_bare(parts.cast(h), matrices, target).view(3, *axes)
    rows = product_of(parts, parts.cast(r), module.r.flatten(1), None, (module.r,), True)
    shifts = [module.r_w_bias, module.r_r_bias]
    if pairs[1] is not None:
        shifts += [module.r_s_bias, module.seg_embed]
    seen = relate(
        module,
        parts,
        number,
        joined,
        rows.view(len(r), *axes[1:]),
        None,
        _pairs_in_tiles(parts, h, *pairs),
        scale=module.scale,
        layout=Layout(part=0, text=2, head=3, token=1),
        shifts=shifts,
    )
    return product_of(parts, seen.flatten(2), module.o.flatten(1), None, (module.o,))


def _sees(parts: Parts, hides: Tensor | None) -> Tensor | None:
    """Which tokens may see which, (B, 1, T, T)."""
    if hides is None:
        return None
    return parts.keep(hides, lambda: (hides == 0).permute(2, 3, 0, 1).contiguous())


def _pairs_in_tiles(parts: Parts, h: Tensor, hides: Tensor | None, seg_mat: Tensor | None) -> Tensor:
    """The same, and which tokens are of different segments, as the kernel reads them."""

    def make() -> Tensor:
        all_see = h.new_ones(1, 1, len(h), len(h), dtype=torch.bool)
        sees = all_see if hides is None else (hides == 0).permute(2, 3, 0, 1)
        return visible_in_tiles(sees, None if seg_mat is None else _apart(seg_mat))

    source = hides if seg_mat is None else seg_mat
    return make() if source is None else parts.keep(source, make)


def _apart(seg_mat: Tensor) -> Tensor:
    """Which tokens are of different segments, (B, 1, T, T)."""
    return (seg_mat[..., 1] != 0).permute(2, 0, 1)[:, None]


def _heads(module: Any, parts: Parts, h: Tensor) -> Sequence[Tensor]:
    """q + r_w, k and v (T, B, H, D), of one product."""
    weight = torch.cat([module.q, module.k, module.v], -1).to(parts.dtype).flatten(1)
    none = torch.zeros_like(module.r_w_bias)
    bias = torch.stack([module.r_w_bias, none, none], 1).flatten().to(parts.dtype)
    joined = functional.linear(parts.cast(h), weight.t(), bias)
    return joined.view(*h.shape[:2], *none.shape[:1], 3, none.shape[1]).unbind(3)


def _shifted_bias(module: Any, parts: Parts, q: Tensor, r: Tensor, hides: Tensor | None) -> Tensor:
    """scale · (q + r_r) · R_m for each pair; each text has rows of its own, as dropout makes them differ."""
    from bermo.nn.fast.shear import shear

    num_tokens, num_texts, heads, size = q.shape
    rows = functional.linear(parts.cast(r), module.r.to(parts.dtype).flatten(1).t())
    own = q + (module.r_r_bias - module.r_w_bias).to(q.dtype)
    # (text and head, T, D) and (text and head, D, M) as views.
    tokens = own.flatten(1, 2).transpose(0, 1)
    distances = rows.view(-1, num_texts * heads, size).permute(1, 2, 0)
    scores = torch.bmm(tokens, distances).view(num_texts, heads, num_tokens, -1)
    return shear(scores, None, _sees(parts, hides), module.scale)


def _segments(module: Any, parts: Parts, q: Tensor, seg_mat: Tensor) -> Tensor:
    """scale · (q + r_s) · (s_1 − s_0) where two tokens are of different segments.

    The module adds s_0's score to all others; what is added to all keys of a query changes no softmax.
    """
    apart = parts.keep(seg_mat, lambda: _apart(seg_mat).to(parts.dtype).contiguous())
    own = q + (module.r_s_bias - module.r_w_bias).to(q.dtype)
    change = (module.seg_embed[1] - module.seg_embed[0]).to(q.dtype)
    scores = (own * change).sum(-1).permute(1, 2, 0)[..., None] * module.scale
    return scores * apart


def is_feed_forward(module: nn.Module) -> bool:
    """Tell whether a module is LayerNorm(x + dropout(layer_2(dropout(gelu(layer_1(x)))))), as XLNet's is."""
    children = dict(module.named_children())
    if children.keys() != {"layer_norm", "layer_1", "layer_2", "dropout", "activation_function"}:
        return False
    linears = children["layer_1"], children["layer_2"]
    return (
        all(isinstance(linear, nn.Linear) and linear.bias is not None for linear in linears)
        and type(children["layer_norm"]) is nn.LayerNorm
        and getattr(children["activation_function"], "act", None) is functional.gelu
        and argument_names(module) == ["inp"]
        and not any(has_hooks(child) for child in children.values())
    )


def feed_forward(module: Any, parts: Parts) -> Callable[[Tensor], Tensor] | None:
    """Return the fused forward of a module that `is_feed_forward`, of others None."""
    if not is_feed_forward(module):
        return None
    from bermo.nn.fast.dense import Gelu
    from bermo.nn.fast.kernels import LARGEST

    number, inner_number = parts.next_seed(), parts.next_seed()

    def forward(inp: Tensor) -> Tensor:
        first = module.layer_1
        if not parts.reads_copies(first) or inp.numel() // inp.shape[-1] * first.out_features >= LARGEST:
            return cast(Tensor, type(module).forward(module, inp))
        p = module.dropout.p if module.dropout.training else 0.0
        h, seed = parts.linear(first, inp), parts.seed(inner_number) if p > 0 else None
        inner = Gelu.apply(h, first.bias, first.bias.dim() == 2, seed, p, parts.late())
        return parts.add_and_norm(module, module.layer_2, inner, inp, number)

    return forward
