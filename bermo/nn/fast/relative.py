"""Attention to contents and to distances, without scores by distance in memory, for GPUs.

    s_ij = scale · ((q_i + c) · k_j + (q_i + d) · A_m + k_j · B_m + a_ij (q_i + e) · w)          m = T + j − i
    p = softmax(s)    o = (m ⊙ p) v                         m: 0 with chance P, else 1 / (1 − P), from Philox

    ds = p ⊙ (m ⊙ (g vᵀ) − g · o)                       dv = (m ⊙ p)ᵀ g
    dq_i = scale · Σ_j ds_ij (k_j + A_m + a_ij w)       dA_m = scale · Σ_texts Σ_{j−i=m−T} ds_ij (q_i + d)
    dk_j = scale · Σ_i ds_ij (q_i + c + B_m)            dB_m = scale · Σ_texts Σ_{j−i=m−T} ds_ij k_j

A and B have a row for each of the 2T distances i − j = T − m, for all texts or for each one; c, d, e and w
are of the head, and a_ij is 1 for tokens of different segments, else 0. The forward pass is one kernel and
keeps the output and the exponentials of all pairs in bfloat16, with a sign for dropout. The backward pass is
two: dq, or dk and dv, with ds, which it writes in bfloat16 for queries and for keys, with a column for each
distance; dA and dB. Nothing is added by atomics, so the results repeat to the bit. A query that may see no
key gives zeros, and so do its gradients.

These are the scores of He et al. 2021 (DeBERTa: both terms) and of Dai et al. 2019 (Transformer-XL, and so
XLNet: A alone, and segments). Axes: B texts, H heads, T tokens, D units of a head.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from bermo.nn.fast import kernels
from bermo.nn.fast.distance_kernels import relative_distances, relative_tokens
from bermo.nn.fast.distance_tiles import num_columns, tile_options
from bermo.nn.fast.dropout_kernels import ROUNDS
from bermo.nn.fast.joined import Layout
from bermo.nn.fast.relative_kernels import relative_forward
from bermo.nn.fast.residual_kernels import sum_parts

# Units of a head.
WIDEST = 128
# Programs that sum the gradients of distances, at least, where there are as many texts.
PROGRAMS = 384


def visible(mask: Tensor, apart: Tensor | None = None) -> Tensor:
    """Which tokens (rows) may see which (columns), from a bool mask (B or 1, H or 1, T, T), in whole tiles.

    A pair of tokens has 1 where the first may see the second, and 2 more where they are `apart`.
    """
    texts, heads, *_, num_tokens = mask.shape
    texts = texts if apart is None else max(texts, len(apart))
    whole = num_columns(num_tokens)
    seen = mask.new_zeros((texts, heads, whole, whole), dtype=torch.uint8)
    pairs = seen[:, :, :num_tokens, :num_tokens].copy_(mask)
    if apart is not None:
        pairs.add_(apart, alpha=2)
    return seen


class Relative(torch.autograd.Function):
    """(joined, A, B, c, d, e, segments, bias, sees, seed, p, scale, layout) -> o; see `relative`."""

    @staticmethod
    def forward(
        ctx: Any,
        joined: Tensor,
        first: Tensor,
        second: Tensor | None,
        of_content: Tensor | None,
        of_distance: Tensor | None,
        of_segment: Tensor | None,
        segments: Tensor | None,
        bias: Tensor | None,
        sees: Tensor,
        seed: Tensor | None,
        p: float,
        scale: float,
        layout: Layout,
    ) -> Tensor:
        q, k, v = layout.views(joined)
        made, out = layout.output(joined)
        texts, heads, num_tokens, size = q.shape
        options = tile_options(num_tokens, size, "forward", of_content is not None)
        columns, blocks = num_columns(num_tokens), options["BLOCKS"]
        sums = joined.new_empty((texts * heads, columns), dtype=torch.float32)
        tops = joined.new_empty((texts * heads, blocks, columns), dtype=torch.float32)
        shares = joined.new_empty((texts * heads, columns, columns))
        relative_forward[(texts * heads, blocks)](
            q,
            k,
            v,
            first,
            _or(second, first),
            _or(of_content, q),
            _or(of_distance, q),
            _or(of_segment, q),
            _or(segments, q),
            sees,
            _or(seed, q),
            out,
            shares,
            tops,
            sums,
            *_strides(q, first, second, out),
            *_squares(sees),
            num_tokens,
            scale,
            p,
            H=heads,
            D=size,
            SHIFT=of_content is not None,
            APART=segments is not None,
            DROP=p > 0,
            ROUNDS=ROUNDS,
            **options,
        )
        shifts = (of_content, of_distance, of_segment, segments)
        ctx.save_for_backward(joined, first, second, *shifts, sees, shares, tops, sums, made)
        ctx.bias, ctx.p, ctx.scale, ctx.layout = bias, p, scale, layout
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        joined, first, second, *shifts, sees, shares, tops, sums, made = ctx.saved_tensors
        of_content, _, of_segment, segments = shifts
        layout: Layout = ctx.layout
        grad = grad if grad.stride(-1) == 1 else grad.contiguous()
        q, k, v = layout.views(joined)
        of_joined = torch.empty_like(joined)
        dq, dk, dv = layout.views(of_joined)
        texts, heads, num_tokens, size = q.shape
        order = (0, 2, 1, 3) if layout.text < layout.token else (1, 2, 0, 3)
        out, g = made.permute(order), grad.permute(order)
        part_step, head_step = layout.steps(joined)
        options = tile_options(num_tokens, size, "tokens", of_content is not None)
        blocks = options["BLOCKS"]
        if of_content is not None:
            part_step, head_step = heads * size, size
        kinds = 3 if of_content is None else 2
        groups = 1 if segments is None else 2
        parts = joined.new_empty((groups, texts * blocks, kinds, heads * size), dtype=torch.float32)
        kept = (texts * heads, num_columns(num_tokens), num_columns(num_tokens) + options["N"])
        rows = joined.new_empty(kept)
        columns = rows if of_content is not None else joined.new_empty(kept)
        relative_tokens[(texts * heads, blocks, 2)](
            q,
            k,
            v,
            first,
            _or(second, first),
            _or(of_content, q),
            _or(of_segment, q),
            _or(segments, q),
            sees,
            out,
            g,
            shares,
            tops,
            sums,
            rows,
            columns,
            dq,
            dk,
            dv,
            parts,
            *_strides(q, first, second, out),
            g.stride(),
            dq.stride(),
            *_squares(sees),
            num_tokens,
            ctx.scale,
            ctx.p,
            part_step,
            head_step,
            kinds * heads * size,
            H=heads,
            D=size,
            SHIFT=of_content is not None,
            APART=segments is not None,
            DROP=ctx.p > 0,
            **options,
        )
        of_first, of_second = _of_distances(ctx, q, k, rows, columns)
        of_shifts: list[Tensor | None] = [None] * 4
        of_bias = None
        if of_content is not None:
            found = parts.new_empty(2, groups, *of_content.shape)
            sum_parts(parts, list(found.flatten(2)))
            of_shifts[:2] = found[:, 0]
            if segments is not None:
                of_shifts[2:] = found[0, 1], torch.stack([-found[1, 1], found[1, 1]])
        elif ctx.bias is not None:
            of_bias = torch.empty_like(ctx.bias)
            sum_parts(parts.view(1, texts * blocks, 1, -1), [of_bias])
        return of_joined, of_first, of_second, *of_shifts, of_bias, *[None] * 5


def _of_distances(
    ctx: Any, q: Tensor, k: Tensor, rows: Tensor, columns: Tensor
) -> tuple[Tensor, Tensor | None]:
    """dA and dB, summed over the texts that read them; one of them where there is no B."""
    _, first, second, _, shift, *_ = ctx.saved_tensors
    texts, heads, num_tokens, size = q.shape
    options = tile_options(num_tokens, size, "distances", shift is not None)
    blocks = options["BLOCKS"]
    kinds = 1 if second is None else 2
    # The gradients lie as the tables do, side by side.
    place = 0 if second is None or first.data_ptr() < second.data_ptr() else 1
    if first.dim() == 4:
        group, parts = 1, torch.empty_like(first)[None]
        of_first = of_second = parts[0]
        strides = (parts.stride(2), parts.stride(3), parts.stride(1))
    else:
        group = triton.next_power_of_2(triton.cdiv(texts, max(1, PROGRAMS // (heads * 2 * blocks * kinds))))
        count = triton.cdiv(texts, group)
        parts = q.new_empty((2 * num_tokens, kinds, count, heads * size), dtype=torch.float32)
        of_first, of_second = parts[:, place], parts[:, kinds - 1 - place]
        strides = (heads * size, size, parts.stride(0))
    relative_distances[(heads * 2 * blocks, triton.cdiv(texts, group), kinds)](
        q,
        k,
        _or(shift, q),
        rows,
        columns,
        of_first,
        of_second,
        q.stride(),
        strides,
        num_tokens,
        texts,
        H=heads,
        D=size,
        SHIFT=shift is not None,
        GROUP=group,
        **options,
    )
    if first.dim() == 4:
        return of_first, None
    total = q.new_empty(2 * num_tokens, kinds, heads, size)
    sum_parts(parts.view(2 * num_tokens * kinds, count, 1, heads * size), [total])
    return total[:, place], None if second is None else total[:, 1 - place]


def _squares(sees: Tensor) -> tuple[int, int]:
    """How many squares of pairs lie between two texts, and between two heads."""
    texts, heads = sees.shape[:2]
    return heads * (texts > 1), int(heads > 1)


def _or(given: Tensor | None, other: Tensor) -> Tensor:
    """A tensor, or one that a kernel will not read."""
    return other if given is None else given


def _strides(q: Tensor, first: Tensor, second: Tensor | None, out: Tensor) -> list[tuple[int, ...]]:
    both = first if second is None else second
    return [q.stride(), _table_strides(first), _table_strides(both), out.stride()]


def _table_strides(table: Tensor) -> tuple[int, int, int]:
    """The steps of texts, heads and distances of a table (2T, H, D) or (2T, B, H, D)."""
    if table.dim() == 4:
        return table.stride(1), table.stride(2), table.stride(0)
    return 0, table.stride(1), table.stride(0)


def relative(
    joined: Tensor,
    first: Tensor,
    second: Tensor | None,
    sees: Tensor,
    *,
    scale: float,
    layout: Layout,
    shifts: Sequence[Tensor] = (),
    bias: Tensor | None = None,
    seed: Tensor | None = None,
    p: float = 0.0,
) -> Tensor:
    """Attention of queries, keys and values that are one product, (B, T, H, D), or (T, B, H, D) as that lies.

    `first` is A and `second` is B, (2T, H, D); without B, A is one for each text, (2T, B, H, D), and `shifts`
    are c and d, (H, D), and where `sees` says which tokens are apart, e and both segments' vectors (2, H, D).
    Where there are no shifts, `bias` was added, detached, where the product was made, and gets its gradient
    here. `sees` is from `visible`. `seed` is one int64 on the device.
    """
    all_shifts = [*shifts, *[None] * (4 - len(shifts))]
    out: Tensor = Relative.apply(joined, first, second, *all_shifts, bias, sees, seed, p, scale, layout)
    return out


def can_relate(device: torch.device, dtype: torch.dtype, shape: tuple[int, int, int, int]) -> bool:
    """Tell whether the kernels can compute attention of this dtype and shape (B, H, T, D)."""
    texts, heads, num_tokens, size = shape
    fits = (
        num_tokens > 0
        and 0 < size <= WIDEST
        and texts * heads * num_columns(num_tokens) ** 2 // 4 < kernels.LARGEST
    )
    return kernels.runs_on(device, dtype) and fits


def relative_twin(
    joined: Tensor,
    first: Tensor,
    second: Tensor | None,
    mask: Tensor | None,
    kept: Tensor | float,
    scale: float,
    layout: Layout,
    shifts: Sequence[Tensor] = (),
    apart: Tensor | None = None,
) -> Tensor:
    """`relative` in plain torch; `kept` holds dropout's factors (B, H, T, T)."""
    q, k, v = layout.views(joined)
    num_tokens = q.shape[2]
    tokens = torch.arange(num_tokens, device=q.device)
    # The distance of each pair, and A of each pair of tokens, (T, T, …).
    place = num_tokens + tokens[None, :] - tokens[:, None]
    axes = "ijnhd" if first.dim() == 4 else "ijhd"
    query, turned, *other = [q + shift[:, None] for shift in shifts[:3]] or (q, q)
    scores = query @ k.transpose(-1, -2) + torch.einsum(f"nhid,{axes}->nhij", turned, first[place])
    if second is not None:
        scores = scores + torch.einsum("nhjd,ijhd->nhij", k, second[place])
    if apart is not None:
        scores = scores + (other[0] * (shifts[3][1] - shifts[3][0])[:, None]).sum(-1, keepdim=True) * apart
    scores = scores.float() * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    sees = (scores > float("-inf")).any(-1, keepdim=True)
    p = scores.masked_fill(~sees, 0.0).softmax(-1) * sees
    out = (p * kept).to(v.dtype) @ v
    return out.transpose(1, 2) if layout.text < layout.token else out.permute(2, 0, 1, 3)
