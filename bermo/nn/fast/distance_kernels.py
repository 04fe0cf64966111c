"""Backward kernels of `nn.fast.relative`: gradients of tokens, and of distances.

With its rows turned, a tile of scores' gradients ds has distances as columns, in the two halves of
`relative_kernels`. The upper half of a tile and the lower half of the next are one tile of all its distances:
so ds lies in memory by rows of queries, and of keys, with a column for each distance.
"""

import triton
import triton.language as tl

from bermo.nn.fast.dropout_kernels import limit_of
from bermo.nn.fast.relative_kernels import apart_vector, rows_of, shifted, table_rows, turn


@triton.jit
def _of_scores(g, seen, value, tile, grown, factor, DROP: tl.constexpr):
    """scale · ds of a tile, and scale times what its queries took of each value.

    `grown` is what makes scale · p of a query's signed exponentials, times dropout's factor.
    """
    mean = tl.sum(g.to(tl.float32) * seen.to(tl.float32), 1) / factor
    of_shares = tl.dot(g, tl.trans(value), input_precision="ieee")
    shares = tile.to(tl.float32) * grown[:, None]
    taken = shares
    if DROP:
        of_shares = tl.where(shares > 0, of_shares, 0.0)
        taken = tl.maximum(shares, 0.0)
    return (tl.abs(shares) * (of_shares - mean[:, None])).to(g.dtype), taken.to(g.dtype)


@triton.jit
def _turned(tile, SIGN: tl.constexpr, N: tl.constexpr):
    """A tile with distances as columns: of queries with sign 1, of keys with sign −1."""
    t, half = tl.arange(0, N), tl.arange(0, N // 2)
    return turn(tile, (t[:, None] + SIGN * half[None, :]) & (N - 1), N)


@triton.jit
def _is_upper(SIGN: tl.constexpr, N: tl.constexpr):
    """Which columns of a turned tile are distances of its upper half."""
    t = tl.arange(0, N)
    return t[:, None] + t[None, :] < N if SIGN > 0 else t[None, :] <= t[:, None]


@triton.jit(do_not_specialize=["num_tokens", "sees_text", "sees_head"])
def relative_tokens(
    q,
    k,
    v,
    first,
    second,
    of_content,
    of_segment,
    segments,
    sees,
    out,
    grad,
    shares,
    tops,
    sums,
    rows,
    columns,
    dq,
    dk,
    dv,
    parts,
    strides,
    first_strides,
    second_strides,
    out_strides,
    grad_strides,
    to_strides,
    sees_text,
    sees_head,
    num_tokens,
    scale,
    P,
    parts_kind,
    parts_head,
    parts_row,
    H: tl.constexpr,
    D: tl.constexpr,
    SHIFT: tl.constexpr,
    APART: tl.constexpr,
    DROP: tl.constexpr,
    BLOCKS: tl.constexpr,
    N: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """dq, or dk and dv, of N tokens of a head of a text, their sums, and scale · ds by distance.

    With SHIFT the sums are those of dq's two parts alone, and the ds of queries.
    """
    program, block = tl.program_id(0), tl.program_id(1)
    text, head = (program // H).to(tl.int64), (program % H).to(tl.int64)
    t, units = tl.arange(0, N), tl.arange(0, WIDTH)
    C: tl.constexpr = BLOCKS * N
    here = block * N + t
    square = program.to(tl.int64) * (C * C)
    # Where N tokens have scores' gradients by distance.
    aside = program.to(tl.int64) * (C * (C + N)) + here[:, None] * (C + N) + t[None, :]
    _, factor = limit_of(P)
    exists = (here < num_tokens)[:, None] & (units < D)[None, :]
    place = text * to_strides[0] + head * to_strides[1] + here[:, None] * to_strides[2] + units[None, :]
    to = parts + (text * tl.num_programs(1) + block) * parts_row + head * parts_head + units
    content = tl.zeros([N, WIDTH], tl.float32)
    distance = tl.zeros([N, WIDTH], tl.float32)
    if tl.program_id(2) == 0:
        g = rows_of(grad, grad_strides, text, head, here, units, num_tokens, D).to(q.dtype.element_ty)
        seen = rows_of(out, out_strides, text, head, here, units, num_tokens, D)
        total = tl.load(sums + program * C + here)
        upper = _is_upper(1, N)
        last = tl.zeros([N, N], q.dtype.element_ty)
        if APART:
            visible = sees + (text * sees_text + head * sees_head) * (C * C) + here[:, None] * C
            of_apart = tl.zeros([N], tl.float32)
        for number in range(BLOCKS):
            j = number * N + t
            key = rows_of(k, strides, text, head, j, units, num_tokens, D)
            value = rows_of(v, strides, text, head, j, units, num_tokens, D)
            tile = tl.load(shares + square + here[:, None] * C + j[None, :])
            top = tl.load(tops + (program * BLOCKS + number) * C + here)
            grown = tl.exp2(top - total) * (scale * factor)
            of_scores, taken = _of_scores(g, seen, value, tile, grown, factor, DROP)
            content = tl.dot(of_scores, key, content, input_precision="ieee")
            if APART:
                is_apart = tl.load(visible + j[None, :]) > 1
                of_apart += tl.sum(tl.where(is_apart, of_scores.to(tl.float32), 0.0), 1)
            tile = _turned(of_scores, 1, N)
            both = tl.where(upper, last, tile)
            tl.store(rows + aside + number * N, both)
            at = (text, head, num_tokens + (number - 1 - block) * N)
            table = table_rows(first, first_strides, at, units, num_tokens, D, N)
            distance = tl.dot(both, table, distance, input_precision="ieee")
            last = tile
        both = tl.where(upper, last, tl.zeros_like(last))
        tl.store(rows + aside + C, both)
        at = (text, head, num_tokens + C - (1 + block) * N)
        table = table_rows(first, first_strides, at, units, num_tokens, D, N)
        distance = tl.dot(both, table, distance, input_precision="ieee")
        found = content + distance
        if APART:
            apart = apart_vector(segments, head, units, H, D)[None, :]
            tokens = rows_of(q, strides, text, head, here, units, num_tokens, D)
            tokens = shifted(tokens, of_segment, head, units, D, SHIFT).to(tl.float32)
            found += of_apart[:, None] * apart
            other = to + tl.num_programs(0) // H * tl.num_programs(1) * parts_row
            tl.store(other, tl.sum(of_apart[:, None] * apart, 0), mask=units < D)
            tl.store(other + parts_kind, tl.sum(of_apart[:, None] * tokens, 0), mask=units < D)
        rounded = found.to(dq.dtype.element_ty)
        tl.store(dq + place, rounded, mask=exists)
        if SHIFT:
            tl.store(to, tl.sum(content, 0), mask=units < D)
            tl.store(to + parts_kind, tl.sum(distance, 0), mask=units < D)
        else:
            tl.store(to, tl.sum(rounded.to(tl.float32), 0), mask=units < D)
    else:
        value = rows_of(v, strides, text, head, here, units, num_tokens, D)
        of_value = tl.zeros([N, WIDTH], tl.float32)
        upper = _is_upper(-1, N)
        last = tl.zeros([N, N], q.dtype.element_ty)
        for number in range(BLOCKS):
            i = number * N + t
            g = rows_of(grad, grad_strides, text, head, i, units, num_tokens, D).to(q.dtype.element_ty)
            seen = rows_of(out, out_strides, text, head, i, units, num_tokens, D)
            query = rows_of(q, strides, text, head, i, units, num_tokens, D)
            query = shifted(query, of_content, head, units, D, SHIFT)
            tile = tl.load(shares + square + i[:, None] * C + here[None, :])
            top = tl.load(tops + (program * BLOCKS + block) * C + i)
            total = tl.load(sums + program * C + i)
            grown = tl.exp2(top - total) * (scale * factor)
            of_scores, taken = _of_scores(g, seen, value, tile, grown, factor, DROP)
            of_value = tl.dot(tl.trans(taken), g, of_value, input_precision="ieee")
            of_scores = tl.trans(of_scores)
            content = tl.dot(of_scores, query, content, input_precision="ieee")
            if not SHIFT:
                tile = _turned(of_scores, -1, N)
                both = tl.where(upper, tile, last)
                tl.store(columns + aside + number * N, both)
                at = (text, head, num_tokens + (block - number) * N)
                table = table_rows(second, second_strides, at, units, num_tokens, D, N)
                distance = tl.dot(both, table, distance, input_precision="ieee")
                last = tile
        if not SHIFT:
            both = tl.where(upper, tl.zeros_like(last), last)
            tl.store(columns + aside + C, both)
            at = (text, head, num_tokens + block * N - C)
            table = table_rows(second, second_strides, at, units, num_tokens, D, N)
            distance = tl.dot(both, table, distance, input_precision="ieee")
        rounded = (content + distance).to(dk.dtype.element_ty)
        tl.store(dk + place, rounded, mask=exists)
        valued = (of_value / scale).to(dv.dtype.element_ty)
        tl.store(dv + place, valued, mask=exists)
        if not SHIFT:
            tl.store(to + parts_kind, tl.sum(rounded.to(tl.float32), 0), mask=units < D)
            tl.store(to + 2 * parts_kind, tl.sum(valued.to(tl.float32), 0), mask=units < D)


@triton.jit(do_not_specialize=["num_tokens", "num_texts"])
def relative_distances(
    q,
    k,
    of_distance,
    rows,
    columns,
    of_first,
    of_second,
    strides,
    of_strides,
    num_tokens,
    num_texts,
    H: tl.constexpr,
    D: tl.constexpr,
    SHIFT: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCKS: tl.constexpr,
    N: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """dA or dB of N distances of a head, summed over a group of texts: Σ ds_m · vector over their tokens."""
    head, number, is_first = (tl.program_id(0) % H).to(tl.int64), tl.program_id(1), tl.program_id(2) == 0
    block = tl.program_id(0) // H - BLOCKS
    C: tl.constexpr = BLOCKS * N
    t, units = tl.arange(0, N), tl.arange(0, WIDTH)
    of_scores, vectors, target = rows, q, of_first
    if not is_first:
        of_scores, vectors, target = columns, k, of_second
    begin, end = number * GROUP, tl.minimum(number * GROUP + GROUP, num_texts)
    # The tiles of tokens that have pairs at these distances: those of keys lie the other way round.
    nearest = tl.where(is_first, block, -1 - block)
    low, high = tl.maximum(0, -1 - nearest), tl.minimum(BLOCKS, BLOCKS - nearest)
    found = tl.zeros([N, WIDTH], tl.float32)
    for step in range(0, (end - begin) * (high - low)):
        text, tile = (begin + step // (high - low)).to(tl.int64), low + step % (high - low)
        row = tile * N + t
        start = (text * H + head) * (C * (C + N)) + (nearest + tile + 1) * N
        moved = tl.load(of_scores + start + row[:, None] * (C + N) + t[None, :])
        tokens = rows_of(vectors, strides, text, head, row, units, num_tokens, D)
        tokens = shifted(tokens, of_distance, head, units, D, SHIFT)
        found = tl.dot(tl.trans(moved), tokens, found, input_precision="ieee")
    m = num_tokens + block * N + t
    exists = ((m >= 0) & (m < 2 * num_tokens))[:, None] & (units < D)[None, :]
    at = (
        number.to(tl.int64) * of_strides[0]
        + head * of_strides[1]
        + m[:, None] * of_strides[2]
        + units[None, :]
    )
    tl.store(target + at, found.to(target.dtype.element_ty), mask=exists)
