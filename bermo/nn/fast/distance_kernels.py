"""Backward kernels of `nn.fast.relative`: gradients of tokens, and of distances.

Scores' gradients ds lie by rows, for queries, and turned, by columns, for keys. With its rows turned, a tile
has distances as columns, in the two halves of `relative_kernels`.
"""

import triton
import triton.language as tl

from bermo.nn.fast.dropout_kernels import limit_of
from bermo.nn.fast.relative_kernels import apart_vector, rows_of, shifted, turn, two_halves


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
def _by_distance(
    tile, table, strides, at, units, num_tokens, SIGN: tl.constexpr, D: tl.constexpr, N: tl.constexpr
):
    """Σ ds · table of the rows of a tile: of queries with sign 1, of keys with sign −1."""
    t, half = tl.arange(0, N), tl.arange(0, N // 2)
    # Its rows with column t as distance.
    tile = turn(tile, (t[:, None] + SIGN * half[None, :]) & (N - 1), N)
    is_upper = t[:, None] + t[None, :] < N if SIGN > 0 else t[None, :] <= t[:, None]
    upper, lower = two_halves(table, strides, at, units, num_tokens, D, N)
    zeros = tl.zeros_like(tile)
    found = tl.dot(tl.where(is_upper, tile, zeros), upper, input_precision="ieee")
    return tl.dot(tl.where(is_upper, zeros, tile), lower, found, input_precision="ieee")


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
    """dq, or dk and dv, of N tokens of a head of a text, their sums, and scale · ds by rows, or by columns.

    With SHIFT the sums are those of dq's two parts alone.
    """
    program, block = tl.program_id(0), tl.program_id(1)
    text, head = (program // H).to(tl.int64), (program % H).to(tl.int64)
    t, units = tl.arange(0, N), tl.arange(0, WIDTH)
    C: tl.constexpr = BLOCKS * N
    here = block * N + t
    square = program.to(tl.int64) * (C * C)
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
            tl.store(rows + square + here[:, None] * C + j[None, :], of_scores)
            content = tl.dot(of_scores, key, content, input_precision="ieee")
            if APART:
                is_apart = tl.load(visible + j[None, :]) > 1
                of_apart += tl.sum(tl.where(is_apart, of_scores.to(tl.float32), 0.0), 1)
            at = (text, head, num_tokens + number * N - block * N)
            distance += _by_distance(of_scores, first, first_strides, at, units, num_tokens, 1, D, N)
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
            tl.store(columns + square + here[:, None] * C + i[None, :], of_scores)
            content = tl.dot(of_scores, query, content, input_precision="ieee")
            if not SHIFT:
                at = (text, head, num_tokens + block * N - number * N)
                distance += _by_distance(of_scores, second, second_strides, at, units, num_tokens, -1, D, N)
        rounded = (content + distance).to(dk.dtype.element_ty)
        tl.store(dk + place, rounded, mask=exists)
        valued = (of_value / scale).to(dv.dtype.element_ty)
        tl.store(dv + place, valued, mask=exists)
        if not SHIFT:
            tl.store(to + parts_kind, tl.sum(rounded.to(tl.float32), 0), mask=units < D)
            tl.store(to + 2 * parts_kind, tl.sum(valued.to(tl.float32), 0), mask=units < D)


@triton.jit
def _summed(
    half,
    vectors,
    shift,
    head,
    texts,
    distance,
    units,
    num_tokens,
    H: tl.constexpr,
    D: tl.constexpr,
    SIGN: tl.constexpr,
    SHIFT: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCKS: tl.constexpr,
    N: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Σ ds_m · vector over the tokens of some texts, for N distances from T + `distance` on."""
    vectors_of, strides = vectors
    begin, end = texts
    C: tl.constexpr = BLOCKS * N
    t = tl.arange(0, N)
    found = tl.zeros([N, WIDTH], tl.float32)
    for number in range(GROUP * BLOCKS):
        text, row = begin + number // BLOCKS, number % BLOCKS * N
        nearest = row + SIGN * distance
        # All pairs of these rows may lie outside of the text.
        if (text < end) & (nearest > -2 * N) & (nearest < C + N):
            square = (text.to(tl.int64) * H + head) * (C * C)
            other = nearest + t[:, None] + SIGN * t[None, :]
            exists = (other >= 0) & (other < C)
            tile = tl.load(half + square + (row + t)[:, None] * C + other, mask=exists, other=0.0)
            tokens = rows_of(vectors_of, strides, text.to(tl.int64), head, row + t, units, num_tokens, D)
            tokens = shifted(tokens, shift, head, units, D, SHIFT)
            found = tl.dot(tl.trans(tile), tokens, found, input_precision="ieee")
    return found


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
    """dA or dB of N distances of a head, summed over a group of texts."""
    head, block, number = (tl.program_id(0) % H).to(tl.int64), tl.program_id(0) // H, tl.program_id(1)
    units = tl.arange(0, WIDTH)
    distance = (block - BLOCKS) * N
    texts = (number * GROUP, tl.minimum(number * GROUP + GROUP, num_texts))
    m = num_tokens + distance + tl.arange(0, N)
    exists = ((m >= 0) & (m < 2 * num_tokens))[:, None] & (units < D)[None, :]
    at = (
        number.to(tl.int64) * of_strides[0]
        + head * of_strides[1]
        + m[:, None] * of_strides[2]
        + units[None, :]
    )
    if tl.program_id(2) == 0:
        found = _summed(
            rows,
            (q, strides),
            of_distance,
            head,
            texts,
            distance,
            units,
            num_tokens,
            H,
            D,
            1,
            SHIFT,
            GROUP,
            BLOCKS,
            N,
            WIDTH,
        )
        tl.store(of_first + at, found.to(of_first.dtype.element_ty), mask=exists)
    else:
        found = _summed(
            columns,
            (k, strides),
            of_distance,
            head,
            texts,
            distance,
            units,
            num_tokens,
            H,
            D,
            -1,
            False,
            GROUP,
            BLOCKS,
            N,
            WIDTH,
        )
        tl.store(of_second + at, found.to(of_second.dtype.element_ty), mask=exists)
