"""Attention by tiles of tokens, for GPUs, with the gradients of its product side by side.

    p = softmax(scale · q kᵀ + mask)    o = (m ⊙ p) v    m: 0 with chance P, else 1 / (1 − P), from Philox
    dv = (m ⊙ p)ᵀ g    ds = p ⊙ (m ⊙ (g vᵀ) − g · o)    dq = scale · ds k    dk = scale · dsᵀ q

after FlashAttention (Dao 2023): the forward pass keeps o and a number a row. Mask and dropout are bits, read
by all kernels (`nn.fast.attend_bits`). One kernel gives dk and dv, another dq; of texts of one tile the first
gives all three. Each program adds up what it writes, so nothing is added by atomics and the results repeat to
the bit. Where q, k and v are one product, their gradients lie side by side as it reads them, and their sums
over tokens are handed to it (`nn.fast.late`). Sums and the softmax are in float32. A query that may see no
key gives zeros, and so do its gradients. Axes: B texts, H heads, T tokens, D units of a head.
"""

from typing import Any

import torch
import triton
from torch import Tensor

from bermo.nn.fast import kernels
from bermo.nn.fast.attend_bits import Seen, draw, padded_length
from bermo.nn.fast.late import Late, Place
from bermo.nn.fast.tiles_back_kernels import tiles_of_keys, tiles_of_queries
from bermo.nn.fast.tiles_kernels import tiles_forward

# Tokens of a text, and units of a head.
LONGEST, WIDEST = 512, 64


def tile_options(num_tokens: int) -> dict[str, int]:
    """N tokens of a program over tiles of M, the fastest of 35 on an H200 (LOG.md), and how it is built."""
    block = min(64, padded_length(num_tokens))
    if num_tokens <= block:
        return {"N": block, "M": block, "num_warps": 4, "num_stages": 1}
    return {"N": block, "M": 32, "num_warps": 4, "num_stages": 3}


class Tiles(torch.autograd.Function):
    """(q, k, v, seen, seed, p, scale, late, place) -> o; see `tiles`."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        seen: Seen,
        seed: Tensor | None,
        p: float,
        scale: float,
        late: Late | None,
        place: Place | None,
    ) -> Tensor:
        texts, heads, num_tokens, size = q.shape
        kept = seen.bits if seed is None or p == 0 else draw(seed, texts * heads, num_tokens, p)
        out = q.new_empty(texts, num_tokens, heads, size).transpose(1, 2)
        padded = seen.bits.shape[-1]
        sums = q.new_empty(texts * heads, padded, dtype=torch.float32)
        ctx.sizes = (seen.heads, num_tokens, padded, scale, p)
        ctx.shape = {"H": heads, "D": size, "WIDTH": max(16, triton.next_power_of_2(size)), "DROP": p > 0}
        ctx.options = tile_options(num_tokens)
        strides = [x.stride() for x in (q, k, v, out)]
        tiles_forward[(texts * heads, triton.cdiv(num_tokens, ctx.options["N"]))](
            q,
            k,
            v,
            seen.bits,
            seen.ends,
            kept,
            out,
            sums,
            *strides,
            *ctx.sizes,
            **ctx.shape,
            **ctx.options,
        )
        ctx.save_for_backward(q, k, v, seen.bits, seen.ends, kept, out, sums)
        ctx.late, ctx.place = late, place
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        q = ctx.saved_tensors[0]
        texts, heads, num_tokens, size = q.shape
        grad = grad if grad.stride(-1) == 1 else grad.contiguous()
        is_one = are_one_product(*ctx.saved_tensors[:3])
        order = (2, 0, 3, 1, 4) if is_one else (0, 1, 3, 2, 4)
        joined = q.new_empty(
            (texts, num_tokens, 3, heads, size) if is_one else (3, texts, num_tokens, heads, size)
        )
        dq, dk, dv = joined.permute(order)
        blocks = triton.cdiv(num_tokens, ctx.options["N"])
        if ctx.place is None:
            parts = q.new_empty(texts * blocks, 3 * heads * size, dtype=torch.float32)
        else:
            parts = ctx.late.hand(joined, ctx.place, texts * blocks)
        given = (*ctx.saved_tensors, grad)
        strides = [x.stride() for x in (*ctx.saved_tensors[:3], ctx.saved_tensors[6], grad, dq)]
        rest, grid = (parts, *strides, *ctx.sizes), (texts * heads, blocks)
        tiles_of_keys[grid](*given, dq, dk, dv, *rest, WHOLE=blocks == 1, **ctx.shape, **ctx.options)
        if blocks > 1:
            tiles_of_queries[grid](*given, dq, *rest, **ctx.shape, **ctx.options)
        return dq, dk, dv, *(None,) * 6


def tiles(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    seen: Seen,
    seed: Tensor | None = None,
    p: float = 0.0,
    scale: float | None = None,
    late: Late | None = None,
    place: Place | None = None,
) -> Tensor:
    """Attention of (B, H, T, D) whose units are neighbours, with dropout by a seed, one int64 on the device.

    With `late` the sums of the gradient of the product that q, k and v are go to their place.
    """
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    out: Tensor = Tiles.apply(q, k, v, seen, seed, p, scale, late, place)
    return out


def are_one_product(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Tell whether q, k and v (B, H, T, D) lie side by side, and the heads in each."""
    _, heads, num_tokens, size = q.shape
    row, width = 3 * heads * size, heads * size * q.element_size()
    lies_side_by_side = [part.data_ptr() - q.data_ptr() for part in (k, v)] == [width, 2 * width]
    return lies_side_by_side and q.stride() == k.stride() == v.stride() == (num_tokens * row, size, row, 1)


def can_tile(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Tell whether the kernels can compute attention of these: alike, and neither too long nor too wide."""
    if q.dim() != 4 or not q.shape == k.shape == v.shape or not q.dtype == k.dtype == v.dtype:
        return False
    texts, heads, num_tokens, size = q.shape
    fits = q.numel() > 0 and num_tokens <= LONGEST and size <= WIDEST
    num_draws = texts * heads * padded_length(num_tokens) ** 2 // 8
    is_known = fits and num_draws < kernels.LARGEST and kernels.runs_on(q.device, q.dtype)
    return is_known and all(x.stride(-1) == 1 for x in (q, k, v))
