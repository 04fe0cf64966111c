"""Attention to contents and to distances, without scores by distance in memory, for GPUs.

    s_ij = scale · ((q_i + c) · k_j + (q_i + d) · A_m + k_j · B_m)     m = T + j − i     c, d: of the head
    p = softmax(s)    o = (m ⊙ p) v                         m: 0 with chance P, else 1 / (1 − P), from Philox

    ds = p ⊙ (m ⊙ (g vᵀ) − g · o)                dv = (m ⊙ p)ᵀ g
    dq_i = scale · Σ_j ds_ij (k_j + A_m)         dA_m = scale · Σ_texts Σ_{j−i=m−T} ds_ij (q_i + d)
    dk_j = scale · Σ_i ds_ij (q_i + c + B_m)     dB_m = scale · Σ_texts Σ_{j−i=m−T} ds_ij k_j

A and B have a row for each of the 2T distances i − j = T − m, for all texts or for each one. The forward
pass is one kernel and keeps the output and a number a row. The backward pass is three: dv and ds, which it
writes in bfloat16 by rows and by columns; dq and dk; dA and dB. Where a distance is wanted, a tile of ds is
read with its rows turned, so nothing is added by atomics and the results repeat to the bit. A query that may
see no key gives zeros, and so do its gradients.

These are the scores of He et al. 2021 (DeBERTa: both terms) and of Dai et al. 2019 (Transformer-XL, and so
XLNet: A alone). Axes: B texts, H heads, T tokens, D units of a head.
"""

from typing import Any

import torch
import triton
from torch import Tensor

from bermo.nn.fast.distance_kernels import relative_distances, relative_tokens
from bermo.nn.fast.joined import Layout
from bermo.nn.fast.relative_kernels import relative_forward, relative_shares
from bermo.nn.fast.residual_kernels import LARGEST, ROUNDS, sum_parts

# Units of a head.
WIDEST = 128
# Programs that sum the gradients of distances, at least, where there are as many texts.
PROGRAMS = 384


def tile_options(num_tokens: int, size: int, kernel: str) -> dict[str, int]:
    """Tokens of a tile, how many warps work on it, and stages of its loops, by the name of a kernel."""
    block = 32 if num_tokens <= 32 else 64
    wide = {"forward": 4, "shares": 8, "tokens": 4, "distances": 4}
    warps = 4 if block == 32 or size <= 32 else wide[kernel]
    return {
        "N": block,
        "WIDTH": max(16, triton.next_power_of_2(size)),
        "num_warps": 2 * warps if size > 64 else warps,
        "num_stages": 2,
    }


class Relative(torch.autograd.Function):
    """(joined, A, B, c, d, bias, mask, seed, p, scale, layout) -> o; see `relative`."""

    @staticmethod
    def forward(
        ctx: Any,
        joined: Tensor,
        first: Tensor,
        second: Tensor | None,
        of_content: Tensor | None,
        of_distance: Tensor | None,
        bias: Tensor | None,
        mask: Tensor | None,
        seed: Tensor | None,
        p: float,
        scale: float,
        layout: Layout,
    ) -> Tensor:
        q, k, v = layout.views(joined)
        made, out = layout.output(joined)
        texts, heads, num_tokens, size = q.shape
        options = tile_options(num_tokens, size, "forward")
        blocks = triton.cdiv(num_tokens, options["N"])
        sums = joined.new_empty((texts * heads, blocks * options["N"]), dtype=torch.float32)
        seen = None if mask is None else mask.expand(texts, heads, num_tokens, num_tokens).view(torch.uint8)
        relative_forward[(texts * heads, blocks)](
            *_sources((q, k, v), first, second, (of_content, of_distance), seen, seed),
            out,
            sums,
            *_source_strides(q, first, second, out),
            *_strides(seen),
            num_tokens,
            int(seen is not None),
            scale,
            p,
            H=heads,
            D=size,
            BOTH=second is not None,
            SHIFT=of_content is not None,
            DROP=p > 0,
            ROUNDS=ROUNDS,
            **options,
        )
        ctx.save_for_backward(joined, first, second, of_content, of_distance, seen, seed, made, sums)
        ctx.bias, ctx.p, ctx.scale, ctx.layout = bias, p, scale, layout
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        joined, first, second, of_content, of_distance, seen, seed, made, sums = ctx.saved_tensors
        layout: Layout = ctx.layout
        grad = grad if grad.stride(-1) == 1 else grad.contiguous()
        q, k, v = layout.views(joined)
        of_joined = torch.empty_like(joined)
        dq, dk, dv = layout.views(of_joined)
        texts, heads, num_tokens, size = q.shape
        order = (0, 2, 1, 3) if layout.text < layout.token else (1, 2, 0, 3)
        out, g = made.permute(order), grad.permute(order)
        part_step, head_step = layout.steps(joined)
        tile = tile_options(num_tokens, size, "forward")["N"]
        blocks = triton.cdiv(num_tokens, tile)
        if of_content is not None:
            part_step, head_step = heads * size, size
        kinds = 3 if of_content is None else 2
        parts = joined.new_empty((1, texts * blocks, kinds, heads * size), dtype=torch.float32)
        rows, columns = joined.new_empty((2, texts * heads, blocks * tile, blocks * tile)).unbind()
        shape = {"H": heads, "D": size, "SHIFT": of_content is not None}
        relative_shares[(texts * heads, blocks)](
            *_sources((q, k, v), first, second, (of_content, of_distance), seen, seed),
            out,
            g,
            sums,
            rows,
            columns,
            dv,
            parts,
            *_source_strides(q, first, second, out),
            g.stride(),
            dv.stride(),
            *_strides(seen),
            num_tokens,
            int(seen is not None),
            ctx.scale,
            ctx.p,
            part_step,
            head_step,
            kinds * heads * size,
            BOTH=second is not None,
            DROP=ctx.p > 0,
            ROUNDS=ROUNDS,
            **shape,
            **tile_options(num_tokens, size, "shares"),
        )
        relative_tokens[(texts * heads, blocks, 2)](
            q,
            k,
            first,
            first if second is None else second,
            q if of_content is None else of_content,
            rows,
            columns,
            dq,
            dk,
            parts,
            *_source_strides(q, first, second, dq),
            num_tokens,
            part_step,
            head_step,
            kinds * heads * size,
            BOTH=second is not None,
            **shape,
            **tile_options(num_tokens, size, "tokens"),
        )
        of_first, of_second = _of_distances(ctx, q, k, rows, columns)
        of_shifts, of_bias = [], None
        if of_content is not None:
            of_shifts = [torch.empty_like(of_content), torch.empty_like(of_distance)]
            sum_parts(parts, of_shifts)
        elif ctx.bias is not None:
            of_bias = torch.empty_like(ctx.bias)
            sum_parts(parts.view(1, texts * blocks, 1, -1), [of_bias])
        return (
            of_joined,
            of_first,
            of_second,
            *(of_shifts or (None, None)),
            of_bias,
            None,
            None,
            None,
            None,
            None,
        )


def _of_distances(
    ctx: Any, q: Tensor, k: Tensor, rows: Tensor, columns: Tensor
) -> tuple[Tensor, Tensor | None]:
    """dA and dB, summed over the texts that read them; one of them where there is no B."""
    _, first, second, _, shift, *_ = ctx.saved_tensors
    texts, heads, num_tokens, size = q.shape
    options = tile_options(num_tokens, size, "distances")
    blocks = 2 * triton.cdiv(num_tokens, options["N"])
    kinds = 1 if second is None else 2
    if first.dim() == 4:
        group, parts = 1, torch.empty_like(first)[None]
        of_first = of_second = parts[0]
        strides = (parts.stride(2), parts.stride(3), parts.stride(1))
    else:
        group = triton.cdiv(texts, max(1, PROGRAMS // (heads * blocks * kinds)))
        count = triton.cdiv(texts, group)
        parts = q.new_empty((kinds * 2 * num_tokens, count, 1, heads * size), dtype=torch.float32)
        of_first, of_second = parts[: 2 * num_tokens], parts[-2 * num_tokens :]
        strides = (heads * size, size, count * heads * size)
    relative_distances[(heads * blocks, triton.cdiv(texts, group), kinds)](
        q,
        k,
        q if shift is None else shift,
        rows,
        columns,
        of_first,
        of_second,
        q.stride(),
        strides,
        num_tokens,
        texts,
        group,
        H=heads,
        D=size,
        SHIFT=shift is not None,
        **options,
    )
    if first.dim() == 4:
        return of_first, None
    total = q.new_empty(kinds, 2 * num_tokens, heads, size)
    sum_parts(parts, [total])
    return total[0], None if second is None else total[1]


def _sources(
    heads: tuple[Tensor, ...],
    first: Tensor,
    second: Tensor | None,
    shifts: tuple[Tensor | None, ...],
    seen: Tensor | None,
    seed: Tensor | None,
) -> list[Tensor]:
    """What scores are made of; where something is not given, what the kernels will not read."""
    q = heads[0]
    kept = [q if shift is None else shift for shift in shifts]
    mask = q.new_empty(1, dtype=torch.uint8) if seen is None else seen
    return [*heads, first, first if second is None else second, *kept, mask, q if seed is None else seed]


def _source_strides(q: Tensor, first: Tensor, second: Tensor | None, out: Tensor) -> list[tuple[int, ...]]:
    both = first if second is None else second
    return [q.stride(), _table_strides(first), _table_strides(both), out.stride()]


def _table_strides(table: Tensor) -> tuple[int, int, int]:
    """The steps of texts, heads and distances of a table (2T, H, D) or (2T, B, H, D)."""
    if table.dim() == 4:
        return table.stride(1), table.stride(2), table.stride(0)
    return 0, table.stride(1), table.stride(0)


def _strides(mask: Tensor | None) -> tuple[int, ...]:
    return (0, 0, 0, 0) if mask is None else mask.stride()


def relative(
    joined: Tensor,
    first: Tensor,
    second: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    scale: float,
    layout: Layout,
    shifts: tuple[Tensor, Tensor] | None = None,
    bias: Tensor | None = None,
    seed: Tensor | None = None,
    p: float = 0.0,
) -> Tensor:
    """Attention of queries, keys and values that are one product, (B, T, H, D), or (T, B, H, D) as that lies.

    `first` is A and `second` is B, (2T, H, D); without B, A may be one for each text, (2T, B, H, D).
    `shifts` are c and d, (H, D). Where there are none, `bias` was added, detached, where the product was
    made, and gets its gradient here. A bool mask (B or 1, H or 1, T, T) is true where a token may see
    another. `seed` is one int64 on the device.
    """
    both = (None, None) if shifts is None else shifts
    out: Tensor = Relative.apply(joined, first, second, *both, bias, mask, seed, p, scale, layout)
    return out


def can_relate(device: torch.device, dtype: torch.dtype, shape: tuple[int, int, int, int]) -> bool:
    """Tell whether the kernels can compute attention of this dtype and shape (B, H, T, D)."""
    texts, heads, num_tokens, size = shape
    num_columns = triton.cdiv(num_tokens, 64) * 64
    fits = num_tokens > 0 and 0 < size <= WIDEST and texts * heads * num_columns * num_columns // 4 < LARGEST
    return runs_on(device, dtype) and fits


def runs_on(device: torch.device, dtype: torch.dtype) -> bool:
    """Tell whether a device runs the kernels: Triton's interpreter multiplies bfloat16's bits as integers."""
    is_half = dtype == torch.bfloat16
    return is_half if device.type == "cuda" else bool(triton.knobs.runtime.interpret) and not is_half


def relative_twin(
    joined: Tensor,
    first: Tensor,
    second: Tensor | None,
    mask: Tensor | None,
    kept: Tensor | float,
    scale: float,
    layout: Layout,
    shifts: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """`relative` in plain torch; `kept` holds dropout's factors (B, H, T, T)."""
    q, k, v = layout.views(joined)
    num_tokens = q.shape[2]
    tokens = torch.arange(num_tokens, device=q.device)
    # The distance of each pair, and A of each pair of tokens, (T, T, …).
    place = num_tokens + tokens[None, :] - tokens[:, None]
    axes = "ijnhd" if first.dim() == 4 else "ijhd"
    query, turned = (q, q) if shifts is None else (q + shift[:, None] for shift in shifts)
    scores = query @ k.transpose(-1, -2) + torch.einsum(f"nhid,{axes}->nhij", turned, first[place])
    if second is not None:
        scores = scores + torch.einsum("nhjd,ijhd->nhij", k, second[place])
    scores = scores.float() * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    sees = (scores > float("-inf")).any(-1, keepdim=True)
    p = scores.masked_fill(~sees, 0.0).softmax(-1) * sees
    out = (p * kept).to(v.dtype) @ v
    return out.transpose(1, 2) if layout.text < layout.token else out.permute(2, 0, 1, 3)
