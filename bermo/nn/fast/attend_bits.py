"""Truths of pairs of tokens as bits, for `nn.fast.tiles`: which keys a query may see, which dropout keeps.

A number of 32 bits holds 32 keys of a query. Numbers of neighbouring queries are neighbours in memory,
(texts and heads, keys / 32, queries), so that a kernel reads them as it reads any vector of a tile's rows.
"""

from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from bermo.nn.fast.attend_bits_kernels import draw_bits, pack_bits
from bermo.nn.fast.dropout_kernels import ROUNDS

# Tokens are counted in tiles of so many, at least: one of 16 computes wrong results on an H200 (LOG.md).
SHORTEST = 32
# Numbers of 32 bits that a program draws.
DRAWN = 256


def padded_length(num_tokens: int) -> int:
    """The tokens that bits are kept for: a tile of 32 or 64, or tiles of 128."""
    if num_tokens <= 64:
        return max(SHORTEST, triton.next_power_of_2(num_tokens))
    return triton.cdiv(num_tokens, 128) * 128


class Seen(NamedTuple):
    """Which keys the queries of texts may see, as bits, one mask for all heads or one for each."""

    bits: Tensor
    ends: Tensor
    """The last key of each 32 that any query sees, counted from 1, or 0."""
    heads: int


def seen_of(mask: Tensor | None, texts: int, num_tokens: int, device: torch.device) -> Seen:
    """The bits of a mask of truths that broadcasts to (texts, heads, T, T); with None every pair is seen."""
    padded = padded_length(num_tokens)
    heads = 1 if mask is None or mask.dim() < 3 else mask.shape[-3]
    bits = torch.empty(texts * heads, padded // 32, padded, dtype=torch.int32, device=device)
    ends = torch.empty(texts * heads, padded // 32, dtype=torch.int32, device=device)
    given: Any = bits
    steps = (0, 0, 0, 0)
    if mask is not None:
        given = mask.expand(texts, heads, num_tokens, num_tokens).view(torch.uint8)
        steps = given.stride()
    pack_bits[(texts * heads, padded // 32)](
        given, bits, ends, *steps, num_tokens, padded, int(mask is not None), H=heads, BLOCK=min(padded, 128)
    )
    return Seen(bits, ends, heads)


def draw(seed: Tensor, count: int, num_tokens: int, p: float) -> Tensor:
    """Bits of `count` heads of texts, each 0 with chance p, by a seed that lies on the device."""
    padded = padded_length(num_tokens)
    return drawn(seed, (count, padded // 32, padded), p)


def drawn(seed: Tensor, shape: tuple[int, ...], p: float) -> Tensor:
    """Numbers of 32 bits, each bit 0 with chance p, by a seed that lies on the device."""
    bits = torch.empty(shape, dtype=torch.int32, device=seed.device)
    draw_bits[(triton.cdiv(bits.numel(), DRAWN),)](seed, bits, p, bits.numel(), ROUNDS=ROUNDS, BLOCK=DRAWN)
    return bits


def truths(bits: Tensor, num_tokens: int) -> Tensor:
    """The truths (texts and heads, T, T) of bits, in plain torch."""
    keys = torch.arange(num_tokens, device=bits.device)
    numbers = bits[:, keys // 32, :num_tokens].transpose(1, 2)
    return (numbers >> (keys % 32)) & 1 != 0
