"""Kernels of `nn.fast.relative`: what the gradients of scores give to tokens and to distances.

Scores' gradients ds lie by rows, for queries, and turned, by columns, for keys. Read with its rows turned, a
tile has distances as columns, in the two halves of `relative_kernels`.
"""

import triton
import triton.language as tl

from bermo.nn.fast.relative_kernels import rows_of, shifted


@triton.jit
def _turn(half, square, row, column, num_columns, SIGN: tl.constexpr, N: tl.constexpr):
    """Scores' gradients of a tile with column t as distance: rows from `row` on, columns from `column` on."""
    t = tl.arange(0, N)
    other = (t[:, None] + SIGN * t[None, :]) & (N - 1)
    return tl.load(half + square + (row + t)[:, None] * num_columns + column + other)


@triton.jit
def _gathered(
    half,
    other,
    table,
    at,
    sizes,
    units,
    shift,
    D: tl.constexpr,
    SIGN: tl.constexpr,
    READS: tl.constexpr,
    SHIFT: tl.constexpr,
    N: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Σ ds · other and Σ ds · table of N rows of `half`: of queries with sign 1, of keys with sign −1."""
    vectors_of, vectors_strides = other
    table_of, table_strides = table
    square, text, head, block = at
    num_tokens, num_columns = sizes
    t = tl.arange(0, N)
    content = tl.zeros([N, WIDTH], tl.float32)
    distance = tl.zeros([N, WIDTH], tl.float32)
    row = block * N
    begin = 0
    while begin < num_tokens:
        tile = tl.load(half + square + (row + t)[:, None] * num_columns + (begin + t)[None, :])
        vectors = rows_of(vectors_of, vectors_strides, text, head, begin + t, units, num_tokens, D)
        vectors = shifted(vectors, shift, head, units, D, SHIFT)
        content += tl.dot(tile, vectors, input_precision="ieee")
        if READS:
            start = num_tokens + SIGN * (begin - row)
            tile = _turn(half, square, row, begin, num_columns, SIGN, N)
            is_upper = t[:, None] + t[None, :] < N if SIGN > 0 else t[None, :] <= t[:, None]
            upper = rows_of(table_of, table_strides, text, head, start + t, units, 2 * num_tokens, D)
            lower = rows_of(table_of, table_strides, text, head, start - N + t, units, 2 * num_tokens, D)
            zeros = tl.zeros_like(tile)
            distance += tl.dot(tl.where(is_upper, tile, zeros), upper, input_precision="ieee")
            distance += tl.dot(tl.where(is_upper, zeros, tile), lower, input_precision="ieee")
        begin += N
    return content, distance


@triton.jit(do_not_specialize=["num_tokens"])
def relative_tokens(
    q,
    k,
    first,
    second,
    of_content,
    rows,
    columns,
    dq,
    dk,
    parts,
    strides,
    first_strides,
    second_strides,
    grad_strides,
    num_tokens,
    parts_kind,
    parts_head,
    parts_row,
    H: tl.constexpr,
    D: tl.constexpr,
    BOTH: tl.constexpr,
    SHIFT: tl.constexpr,
    N: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """dq or dk of N tokens of a head of a text, and their sums; with SHIFT those of dq's two parts alone."""
    program, block = tl.program_id(0), tl.program_id(1)
    text, head = (program // H).to(tl.int64), (program % H).to(tl.int64)
    units = tl.arange(0, WIDTH)
    num_columns = tl.cdiv(num_tokens, N) * N
    square = program.to(tl.int64) * num_columns * num_columns
    i = block * N + tl.arange(0, N)
    exists = (i < num_tokens)[:, None] & (units < D)[None, :]
    at, sizes = (square, text, head, block), (num_tokens, num_columns)
    place = text * grad_strides[0] + head * grad_strides[1] + i[:, None] * grad_strides[2] + units[None, :]
    to = parts + (text * tl.num_programs(1) + block) * parts_row + head * parts_head + units
    if tl.program_id(2) == 0:
        content, distance = _gathered(
            rows,
            (k, strides),
            (first, first_strides),
            at,
            sizes,
            units,
            of_content,
            D,
            1,
            True,
            False,
            N,
            WIDTH,
        )
        rounded = (content + distance).to(dq.dtype.element_ty)
        tl.store(dq + place, rounded, mask=exists)
        if SHIFT:
            tl.store(to, tl.sum(content, 0), mask=units < D)
            tl.store(to + parts_kind, tl.sum(distance, 0), mask=units < D)
        else:
            tl.store(to, tl.sum(rounded.to(tl.float32), 0), mask=units < D)
    else:
        content, distance = _gathered(
            columns,
            (q, strides),
            (second, second_strides),
            at,
            sizes,
            units,
            of_content,
            D,
            -1,
            BOTH,
            SHIFT,
            N,
            WIDTH,
        )
        rounded = (content + distance).to(dk.dtype.element_ty)
        tl.store(dk + place, rounded, mask=exists)
        if not SHIFT:
            tl.store(to + parts_kind, tl.sum(rounded.to(tl.float32), 0), mask=units < D)


@triton.jit
def _summed(
    half,
    vectors,
    shift,
    head,
    texts,
    distance,
    units,
    sizes,
    H: tl.constexpr,
    D: tl.constexpr,
    SIGN: tl.constexpr,
    SHIFT: tl.constexpr,
    N: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Σ ds_m · vector over the tokens of some texts, for N distances from T + `distance` on."""
    vectors_of, strides = vectors
    begin, end = texts
    num_tokens, num_columns = sizes
    t = tl.arange(0, N)
    found = tl.zeros([N, WIDTH], tl.float32)
    text = begin
    while text < end:
        square = (text.to(tl.int64) * H + head) * num_columns * num_columns
        row = 0
        while row < num_tokens:
            # All pairs of these rows may lie outside of the text.
            nearest = row + SIGN * distance
            if (nearest > -2 * N) & (nearest < num_columns + N):
                other = nearest + t[:, None] + SIGN * t[None, :]
                exists = (other >= 0) & (other < num_columns)
                at = half + square + (row + t)[:, None] * num_columns + other
                tile = tl.load(at, mask=exists, other=0.0)
                tokens = rows_of(vectors_of, strides, text.to(tl.int64), head, row + t, units, num_tokens, D)
                tokens = shifted(tokens, shift, head, units, D, SHIFT)
                found += tl.dot(tl.trans(tile), tokens, input_precision="ieee")
            row += N
        text += 1
    return found


@triton.jit(do_not_specialize=["num_tokens", "num_texts", "group"])
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
    group,
    H: tl.constexpr,
    D: tl.constexpr,
    SHIFT: tl.constexpr,
    N: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """dA or dB of N distances of a head, summed over a group of texts."""
    head, block, number = (tl.program_id(0) % H).to(tl.int64), tl.program_id(0) // H, tl.program_id(1)
    units = tl.arange(0, WIDTH)
    num_columns = tl.cdiv(num_tokens, N) * N
    distance = block * N - num_columns
    texts = (number * group, tl.minimum(number * group + group, num_texts))
    sizes = (num_tokens, num_columns)
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
            rows, (q, strides), of_distance, head, texts, distance, units, sizes, H, D, 1, SHIFT, N, WIDTH
        )
        tl.store(of_first + at, found.to(of_first.dtype.element_ty), mask=exists)
    else:
        found = _summed(
            columns, (k, strides), of_distance, head, texts, distance, units, sizes, H, D, -1, False, N, WIDTH
        )
        tl.store(of_second + at, found.to(of_second.dtype.element_ty), mask=exists)
