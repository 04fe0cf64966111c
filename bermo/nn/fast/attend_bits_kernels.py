"""Kernels of `nn.fast.attend_bits`: bits of a mask, bits of dropout, and how other kernels read them."""

import triton
import triton.language as tl

from bermo.nn.fast.dropout_kernels import limit_of


@triton.jit(
    do_not_specialize=["text_step", "head_step", "row_step", "column_step", "num_tokens", "is_masked"]
)
def pack_bits(
    mask,
    bits,
    ends,
    text_step,
    head_step,
    row_step,
    column_step,
    num_tokens,
    padded,
    is_masked,
    H: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The bits of 32 keys in a mask (texts, H, T, T), and which of them is the last that is seen, or 0."""
    program, group = tl.program_id(0), tl.program_id(1)
    start = mask + (program // H).to(tl.int64) * text_step + (program % H) * head_step
    bit = tl.arange(0, 32)
    column = group * 32 + bit
    last = 0
    for begin in range(0, padded, BLOCK):
        row = begin + tl.arange(0, BLOCK)
        exists = (row < num_tokens)[:, None] & (column < num_tokens)[None, :]
        at = start + row[:, None] * row_step + column[None, :] * column_step
        sees = (tl.load(at, mask=exists & (is_masked != 0), other=1) != 0) & exists
        last = tl.maximum(last, tl.max(tl.max(tl.where(sees, column[None, :] + 1, 0), 1), 0))
        word = tl.sum(tl.where(sees, 1, 0).to(tl.uint32) << bit[None, :].to(tl.uint32), 1)
        target = bits + (program * (padded // 32) + group).to(tl.int64) * padded + row
        tl.store(target, word.to(tl.int32, bitcast=True), mask=row < padded)
    tl.store(ends + program * (padded // 32) + group, last)


@triton.jit(do_not_specialize=["count"])
def draw_bits(seed, bits, P, count, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    """Numbers whose bits are 0 with chance P, each by 16 bits of four calls of Philox."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    least, _ = limit_of(P)
    key = tl.load(seed)
    word = tl.zeros([BLOCK], tl.uint32)
    for call in tl.static_range(4):
        numbers = tl.randint4x(key, index * 4 + call, ROUNDS)
        for n in tl.static_range(4):
            number = numbers[n].to(tl.uint32, bitcast=True)
            bit = 8 * call + 2 * n
            word |= (number >= least).to(tl.uint32) << bit
            word |= ((number << 16) >= least).to(tl.uint32) << (bit + 1)
    tl.store(bits + index, word.to(tl.int32, bitcast=True), mask=index < count)


@triton.jit
def bits_of(bits, rows, columns, first, padded, N: tl.constexpr, TURNED: tl.constexpr):
    """Truths of a tile with N columns, 32 or 64, of which `first` is a multiple; turned, they are rows."""
    column = columns - first
    at = bits + (first // 32) * padded + rows
    found = _row(tl.load(at), TURNED)
    column = column[:, None] if TURNED else column[None, :]
    if N > 32:
        found = tl.where(column < 32, found, _row(tl.load(at + padded), TURNED))
    return (found << (31 - (column & 31))) < 0


@triton.jit
def _row(numbers, TURNED: tl.constexpr):
    return numbers[None, :] if TURNED else numbers[:, None]
