"""Kernels of `nn.fast.rows`: the gradient of a table of vectors by its rows, and AdamW from that.

Positions 0 … n − 1 have read rows `keys` of a table, one of some in a launch (axis 1 of a grid).
A rank is a position's place in the order by key, then by position; the positions of one row are a run of
ranks. A run is summed by blocks of ranks, and the sums of blocks are added up in their order: no atomics, no
sort, the same bits each time.
"""

import triton
import triton.language as tl

from bermo.nn.fast.adam_kernels import settings_of, update_at
from bermo.nn.fast.kernels import pointer_at

# The key of positions whose row gets no gradient: padding.
NOBODY = tl.constexpr(2**31 - 2)


@triton.jit(do_not_specialize=["num", "first_period", "second_period", "third_period"])
def rank_rows(
    keys,
    ranked,
    slots,
    num,
    first_period,
    second_period,
    third_period,
    first_padding,
    second_padding,
    third_padding,
    first_offset,
    second_offset,
    third_offset,
    BLOCK: tl.constexpr,
    SPAN: tl.constexpr,
):
    """Write the key, the position, the first and the last rank of the run of each rank: `ranked`, (4, K, n).

    The keys of groups (axis 2 of the grid) are in order. In a group keys repeat with a period, if that is
    less than its `num` positions. `slots` of a row gets the first rank of its run.
    """
    table, group = tl.program_id(1), tl.program_id(2)
    period, padding, offset = first_period, first_padding, first_offset
    if table == 1:
        period, padding, offset = second_period, second_padding, second_offset
    if table == 2:
        period, padding, offset = third_period, third_padding, third_offset
    total = num * tl.num_programs(2)
    base = table * total + group * num
    local = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    exists = local < num
    key = tl.load(keys + base + local, mask=exists, other=0)
    key = tl.where(key == padding, NOBODY, key)
    place = local % period
    # Two counts in one number: of less keys, and above 16 bits of equal ones that come before.
    counts = tl.zeros([BLOCK, SPAN], tl.int32)
    equals = tl.zeros([BLOCK, SPAN], tl.int32)
    start = 0
    while start < period:
        at = start + tl.arange(0, SPAN)
        other = tl.load(keys + base + at, mask=at < period, other=NOBODY + 1)
        other = tl.where(other == padding, NOBODY, other)[None, :]
        is_equal = other == key[:, None]
        is_before = is_equal & (at[None, :] < place[:, None])
        counts += tl.where(other < key[:, None], 1, tl.where(is_before, 65536, 0))
        equals += is_equal.to(tl.int32)
        start += SPAN
    count, equal = tl.sum(counts, 1), tl.sum(equals, 1)
    less, before = count % 65536, count // 65536
    repeats = num // period
    first = group * num + less * repeats
    rank = first + (local // period) * equal + before
    kind = tl.num_programs(1) * total
    target = ranked + table * total + rank
    tl.store(target, key, mask=exists)
    tl.store(target + kind, group * num + local, mask=exists)
    tl.store(target + 2 * kind, first, mask=exists)
    tl.store(target + 3 * kind, first + equal * repeats, mask=exists)
    tl.store(slots + offset + key, first, mask=exists & (rank == first) & (key < NOBODY))


@triton.jit(do_not_specialize=["num"])
def sum_rows(
    grads,
    ranked,
    rows,
    norms,
    num,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The sum of each run's part in a block of ranks, in `rows` at its first rank there, and its norm.

    The sums of all parts are one product with a matrix that says which ranks are of one run. Of WIDTH columns
    each program writes the norms of runs that lie in the block, and 0 for all other ranks.
    """
    table = tl.program_id(1)
    total = tl.num_programs(1) * num
    start = tl.program_id(0) * BLOCK
    rank = start + tl.arange(0, BLOCK)
    is_rank = rank < num
    at = table * num + rank
    key = tl.load(ranked + at, mask=is_rank, other=NOBODY)
    position = tl.load(ranked + total + at, mask=is_rank, other=0).to(tl.int64)
    first = tl.load(ranked + 2 * total + at, mask=is_rank, other=-1)
    last = tl.load(ranked + 3 * total + at, mask=is_rank, other=-1)
    columns = tl.program_id(2) * WIDTH + tl.arange(0, WIDTH)
    is_read = is_rank & (key < NOBODY)
    exists = is_read[:, None] & (columns < D)[None, :]
    given = tl.load(grads + position[:, None] * D + columns[None, :], mask=exists, other=0.0)
    is_same = (first[:, None] == first[None, :]).to(tl.float32)
    sums = tl.dot(is_same, given, input_precision="ieee")
    is_first = is_read & (rank == tl.maximum(first, start))
    source = at.to(tl.int64)[:, None] * D + columns[None, :]
    tl.store(rows + source, sums, mask=exists & is_first[:, None])
    is_whole = is_first & (first >= start) & (last <= start + BLOCK)
    norm = tl.where(is_whole, tl.sqrt(tl.sum(sums * sums, 1)), 0.0)
    tl.store(norms + tl.program_id(2) * total + at, norm, mask=is_rank)


@triton.jit(do_not_specialize=["num"])
def merge_rows(
    ranked,
    rows,
    norms,
    num,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The sum of a run that lies in several blocks, in `rows` at its first rank, and its norm.

    The second block of a run is its program.
    """
    table = tl.program_id(1)
    total = tl.num_programs(1) * num
    start = (tl.program_id(0) + 1) * BLOCK
    at = table * num + start
    key = tl.load(ranked + at)
    first = tl.load(ranked + 2 * total + at)
    if (key < NOBODY) & (first < start) & (first >= start - BLOCK):
        last = tl.load(ranked + 3 * total + at)
        columns = tl.program_id(2) * WIDTH + tl.arange(0, WIDTH)
        is_column = columns < D
        added = tl.zeros([TILE, WIDTH], tl.float32)
        count = (last - start + BLOCK - 1) // BLOCK + 1
        part = 0
        while part < count:
            which = part + tl.arange(0, TILE)
            place = tl.where(which == 0, first, start + (which - 1) * BLOCK)
            exists = (which < count)[:, None] & is_column[None, :]
            source = (table * num + place).to(tl.int64)[:, None] * D + columns[None, :]
            added += tl.load(rows + source, mask=exists, other=0.0)
            part += TILE
        joined = tl.sum(added, 0)
        target = table * num + first
        tl.store(rows + target.to(tl.int64) * D + columns, joined, mask=is_column)
        tl.store(norms + tl.program_id(2) * total + target, tl.sqrt(tl.sum(joined * joined)))


@triton.jit(do_not_specialize=["num"])
def adam_rows(
    weights,
    firsts,
    seconds,
    ranked,
    rows,
    slots,
    slot_offsets,
    heights,
    numbers,
    rates,
    steps,
    scales,
    tensors,
    starts,
    sizes,
    num,
    D: tl.constexpr,
    EVEN: tl.constexpr,
    LENGTH: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Update LENGTH rows of a table; a model's rows, `heights` of each, have a clip factor of their own."""
    chunk = tl.program_id(0)
    table = tl.load(tensors + chunk)
    first_row, num_rows = tl.load(starts + chunk) // D, tl.load(sizes + table) // D
    height, slot_at = tl.load(heights + table), slots + tl.load(slot_offsets + table)
    weight_at = pointer_at(weights, table, tl.float32, EVEN)
    first_at = pointer_at(firsts, table, tl.float32, EVEN)
    second_at = pointer_at(seconds, table, tl.float32, EVEN)
    decay, b1, a1, b2, a2, eps, pace, root = settings_of(numbers, rates, steps, table)
    row = first_row + tl.arange(0, LENGTH)
    is_row = row < num_rows
    # A slot that was written for other positions points to the key of another row, or behind all keys.
    slot = table * num + tl.minimum(tl.load(slot_at + row, mask=is_row, other=0), num - 1)
    was_read = is_row & (tl.load(ranked + slot, mask=is_row, other=-1) == row)
    scale = tl.load(scales + row // height, mask=is_row, other=0.0)[:, None]
    for j in range((D + WIDTH - 1) // WIDTH):
        column = j * WIDTH + tl.arange(0, WIDTH)
        exists = is_row[:, None] & (column < D)[None, :]
        at = row[:, None] * D + column[None, :]
        source = slot.to(tl.int64)[:, None] * D + column[None, :]
        grad = tl.load(rows + source, mask=exists & was_read[:, None], other=0.0) * scale
        value = tl.load(weight_at + at, mask=exists, other=0.0)
        update_at(
            at,
            exists,
            value,
            grad,
            weight_at,
            first_at,
            second_at,
            decay,
            b1,
            a1,
            b2,
            a2,
            eps,
            pace,
            root,
        )
