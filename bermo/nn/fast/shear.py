"""Scores that depend on a token and a distance, moved to pairs of tokens, in one pass each way, for GPUs.

    s_ij = scale · (a_i,m + b_j,m)     m = T + j − i: column m of a row is the distance i − j = T − m
    s_ij = HIDDEN                      where token i may not see token j

    da_i,m = scale · ds_ij             db_j,m = scale · ds_ij             0 for distances that a row has not

a is what each query says of each distance (DeBERTa's c2p, XLNet's bd), b what each key does (p2c, turned).
Each number is read at one place only, so the gradient is a copy too: no matrix of indices, no zeroed memory
to add to, no atomics. The first column, m = 0, is a distance that no pair of tokens has.

A token that may see no other, which is padding, has shares by q kᵀ alone, and no loss may read it. Its
gradients have to be finite all the same, since they are multiplied by zero: in the way back torch's fast
attention takes the exponential of a score less the logarithm of its row's sum, which is far from 0 where
float32 rounds both by much.

Added to q kᵀ as a bias inside torch's attention, these are the scores of He et al. 2021 (DeBERTa) and of Dai
et al. 2019 (Transformer-XL, and so XLNet). Axes: B texts, H heads, T tokens, D units of a head.
"""

from typing import Any

import torch
import triton
from torch import Tensor

from bermo.nn.fast.shear_kernels import shear_backward, shear_forward

# Far below any score, and so small that float32 still has its hundredths.
HIDDEN = -3e4
# Tokens of a tile, both ways.
BLOCK = 32


class Shear(torch.autograd.Function):
    """(a, b, mask, scale) -> s; see `shear`."""

    @staticmethod
    def forward(ctx: Any, first: Tensor, second: Tensor | None, mask: Tensor | None, scale: float) -> Tensor:
        texts, heads, num_tokens, _ = first.shape
        both = first if second is None else second
        out = first.new_empty(texts, heads, num_tokens, num_tokens)
        seen = None if mask is None else mask.expand(out.shape).view(torch.uint8)
        shear_forward[_grid(first)](
            first,
            both,
            out.view(torch.uint8) if seen is None else seen,
            out,
            first.stride(),
            both.stride(),
            *_strides(seen),
            num_tokens,
            int(seen is not None),
            scale,
            HIDDEN,
            H=heads,
            BOTH=second is not None,
            BLOCK=BLOCK,
        )
        # Their numbers are not needed again, only how they lie in memory.
        ctx.save_for_backward(seen)
        ctx.scale, ctx.strides = scale, (first.stride(), both.stride())
        ctx.shape, ctx.has_second = first.shape, second is not None
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        (seen,) = ctx.saved_tensors
        first_strides, second_strides = ctx.strides
        of_first = grad.new_empty_strided(ctx.shape, first_strides)
        of_second = grad.new_empty_strided(ctx.shape, second_strides) if ctx.has_second else of_first
        shear_backward[_grid(of_first)](
            grad,
            of_first.view(torch.uint8) if seen is None else seen,
            of_first,
            of_second,
            grad.stride(),
            first_strides,
            second_strides,
            *_strides(seen),
            ctx.shape[2],
            int(seen is not None),
            ctx.scale,
            H=ctx.shape[1],
            BOTH=ctx.has_second,
            BLOCK=BLOCK,
        )
        return of_first, of_second if ctx.has_second else None, None, None


def _grid(first: Tensor) -> tuple[int, int, int]:
    texts, heads, num_tokens, _ = first.shape
    tiles = triton.cdiv(num_tokens, BLOCK)
    return texts * heads, tiles, tiles


def _strides(mask: Tensor | None) -> tuple[int, ...]:
    return (0, 0, 0, 0) if mask is None else mask.stride()


def shear(first: Tensor, second: Tensor | None, mask: Tensor | None, scale: float) -> Tensor:
    """Scores (B, H, T, T) of a and b, each (B, H, T, 2T), in their dtype.

    A bool mask is true where a token may see another; it is one for all heads, or for all texts, where its
    axis is 1.
    """
    out: Tensor = Shear.apply(first, second, mask, scale)
    return out


def shear_twin(first: Tensor, second: Tensor | None, mask: Tensor | None, scale: float) -> Tensor:
    """`shear` in plain torch: a view, since one row down is one column to the left."""
    scores = _by_token(first).float()
    if second is not None:
        scores = scores + _by_token(second.flip(-1).roll(1, -1)).transpose(-1, -2).float()
    scores = scores * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, HIDDEN)
    return scores.to(first.dtype)


def _by_token(x: Tensor) -> Tensor:
    """(B, H, T, 2T) by distance as (B, H, T, T) by token: x_i,T+j−i."""
    num_tokens, width = x.shape[2:]
    rows = x.flatten(2)[..., num_tokens:].unfold(-1, num_tokens, width - 1)
    return rows[:, :, :num_tokens]
