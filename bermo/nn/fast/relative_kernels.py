"""Kernels of `nn.fast.relative`: attention to contents and to distances, a tile of tokens a program.

A tile has N rows i and N columns j, and its pairs have 2 N distances: with m₀ = T + first j − first i, column
t of the upper half is m₀ + t and of the lower half m₀ − N + t. Pair (i, j) is at t = (j − i) mod N of the
upper half where j ≥ i and of the lower half elsewhere: one turn of the rows of a tile moves all of them.
"""

import triton
import triton.language as tl

# One kernel is built for all lengths and seeds, and for batches with and without a mask.
VARYING = ["seed", "num_tokens", "is_masked", "mask_text", "mask_head", "mask_row", "mask_column"]


@triton.jit
def rows_of(base, strides, text, head, rows, units, num_rows, D: tl.constexpr):
    """Rows of a head of a text, (N, units); those that do not exist are zeros."""
    at = base + text * strides[0] + head * strides[1] + rows[:, None] * strides[2] + units[None, :]
    exists = (rows >= 0)[:, None] & (rows < num_rows)[:, None] & (units < D)[None, :]
    return tl.load(at, mask=exists, other=0.0)


@triton.jit
def shifted(tokens, shift, head, units, D: tl.constexpr, SHIFT: tl.constexpr):
    """Vectors of tokens plus one of the head."""
    if SHIFT:
        added = tl.load(shift + head * D + units, mask=units < D, other=0.0)
        tokens = (tokens.to(tl.float32) + added.to(tl.float32)[None, :]).to(tokens.dtype)
    return tokens


@triton.jit
def _scores(
    query, key, turned, tables, at, units, num_tokens, D: tl.constexpr, BOTH: tl.constexpr, N: tl.constexpr
):
    """q_i · k_j + q'_i · A_m + k_j · B_m of a tile whose upper half begins at a distance."""
    first, first_strides, second, second_strides = tables
    text, head, start = at
    t = tl.arange(0, N)
    place = (t[None, :] - t[:, None]) & (N - 1)
    scores = tl.dot(query, tl.trans(key), input_precision="ieee")
    upper = rows_of(first, first_strides, text, head, start + t, units, 2 * num_tokens, D)
    lower = rows_of(first, first_strides, text, head, start - N + t, units, 2 * num_tokens, D)
    above = tl.dot(turned, tl.trans(upper), input_precision="ieee")
    below = tl.dot(turned, tl.trans(lower), input_precision="ieee")
    scores += tl.gather(tl.where(t[:, None] + t[None, :] < N, above, below), place, 1)
    if BOTH:
        upper = rows_of(second, second_strides, text, head, start + t, units, 2 * num_tokens, D)
        lower = rows_of(second, second_strides, text, head, start - N + t, units, 2 * num_tokens, D)
        above = tl.dot(upper, tl.trans(key), input_precision="ieee")
        below = tl.dot(lower, tl.trans(key), input_precision="ieee")
        scores += tl.gather(tl.where(t[:, None] <= t[None, :], above, below), place, 0)
    return scores


@triton.jit
def _sees(mask, strides, text, head, i, j, num_tokens, is_masked):
    """Which tokens i may see which tokens j."""
    exists = (i < num_tokens)[:, None] & (j < num_tokens)[None, :]
    at = mask + text * strides[0] + head * strides[1] + i[:, None] * strides[2] + j[None, :] * strides[3]
    return exists & (tl.load(at, mask=exists & (is_masked != 0), other=1) != 0)


@triton.jit
def _kept(seed, program, i, first_j, num_columns, P, ROUNDS: tl.constexpr, N: tl.constexpr):
    """Dropout's factors of a tile; four neighbours share one draw of four random numbers."""
    quarters = first_j // 4 + tl.arange(0, N // 4)
    counter = (program * num_columns + i)[:, None] * (num_columns // 4) + quarters[None, :]
    one, two, three, four = tl.rand4x(tl.load(seed), counter, ROUNDS)
    even = tl.join((one >= P).to(tl.int8), (three >= P).to(tl.int8))
    odd = tl.join((two >= P).to(tl.int8), (four >= P).to(tl.int8))
    is_kept = tl.reshape(tl.join(even, odd), (N, N))
    return tl.where(is_kept != 0, 1.0 / (1.0 - P), 0.0)


@triton.jit(do_not_specialize=VARYING)
def relative_forward(
    q,
    k,
    v,
    first,
    second,
    of_content,
    of_distance,
    mask,
    seed,
    out,
    sums,
    strides,
    first_strides,
    second_strides,
    out_strides,
    mask_text,
    mask_head,
    mask_row,
    mask_column,
    num_tokens,
    is_masked,
    scale,
    P,
    H: tl.constexpr,
    D: tl.constexpr,
    BOTH: tl.constexpr,
    SHIFT: tl.constexpr,
    DROP: tl.constexpr,
    ROUNDS: tl.constexpr,
    N: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """o of N queries of a head of a text, and the logarithm of the sum of each one's exponentials."""
    program, block = tl.program_id(0), tl.program_id(1)
    text, head = (program // H).to(tl.int64), (program % H).to(tl.int64)
    t, units = tl.arange(0, N), tl.arange(0, WIDTH)
    i = block * N + t
    mask_strides = (mask_text, mask_head, mask_row, mask_column)
    tables = (first, first_strides, second, second_strides)
    num_columns = tl.cdiv(num_tokens, N) * N
    bare = rows_of(q, strides, text, head, i, units, num_tokens, D)
    query = shifted(bare, of_content, head, units, D, SHIFT)
    turned = shifted(bare, of_distance, head, units, D, SHIFT)
    top = tl.full([N], float("-inf"), tl.float32)
    total = tl.zeros([N], tl.float32)
    found = tl.zeros([N, WIDTH], tl.float32)
    begin = 0
    # Triton's interpreter knows no range over a number that was given at run time.
    while begin < num_tokens:
        j = begin + t
        key = rows_of(k, strides, text, head, j, units, num_tokens, D)
        start = num_tokens + begin - block * N
        scores = _scores(query, key, turned, tables, (text, head, start), units, num_tokens, D, BOTH, N)
        sees = _sees(mask, mask_strides, text, head, i, j, num_tokens, is_masked)
        scores = tl.where(sees, scores * scale, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        # A query that may see no key so far.
        finite = tl.where(higher == float("-inf"), 0.0, higher)
        shares = tl.exp(scores - finite[:, None])
        shrunk = tl.exp(top - finite)
        total = total * shrunk + tl.sum(shares, 1)
        if DROP:
            shares *= _kept(seed, program, i, begin, num_columns, P, ROUNDS, N)
        value = rows_of(v, strides, text, head, j, units, num_tokens, D)
        found = found * shrunk[:, None] + tl.dot(shares.to(value.dtype), value, input_precision="ieee")
        top = higher
        begin += N
    sees_any = total > 0
    divisor = tl.where(sees_any, total, 1.0)
    exists = (i < num_tokens)[:, None] & (units < D)[None, :]
    at = out + text * out_strides[0] + head * out_strides[1] + i[:, None] * out_strides[2] + units[None, :]
    tl.store(at, (found / divisor[:, None]).to(out.dtype.element_ty), mask=exists)
    tl.store(sums + program * num_columns + i, tl.where(sees_any, top + tl.log(divisor), 0.0))


@triton.jit(do_not_specialize=VARYING)
def relative_shares(
    q,
    k,
    v,
    first,
    second,
    of_content,
    of_distance,
    mask,
    seed,
    out,
    grad,
    sums,
    rows,
    columns,
    dv,
    parts,
    strides,
    first_strides,
    second_strides,
    out_strides,
    grad_strides,
    dv_strides,
    mask_text,
    mask_head,
    mask_row,
    mask_column,
    num_tokens,
    is_masked,
    scale,
    P,
    parts_kind,
    parts_head,
    parts_row,
    H: tl.constexpr,
    D: tl.constexpr,
    BOTH: tl.constexpr,
    SHIFT: tl.constexpr,
    DROP: tl.constexpr,
    ROUNDS: tl.constexpr,
    N: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """dv of N keys of a head of a text; and scale · ds of all queries, by rows and turned, by columns."""
    program, block = tl.program_id(0), tl.program_id(1)
    text, head = (program // H).to(tl.int64), (program % H).to(tl.int64)
    t, units = tl.arange(0, N), tl.arange(0, WIDTH)
    j = block * N + t
    mask_strides = (mask_text, mask_head, mask_row, mask_column)
    tables = (first, first_strides, second, second_strides)
    num_columns = tl.cdiv(num_tokens, N) * N
    key = rows_of(k, strides, text, head, j, units, num_tokens, D)
    value = rows_of(v, strides, text, head, j, units, num_tokens, D)
    square = program.to(tl.int64) * num_columns * num_columns
    of_value = tl.zeros([N, WIDTH], tl.float32)
    begin = 0
    while begin < num_tokens:
        i = begin + t
        bare = rows_of(q, strides, text, head, i, units, num_tokens, D)
        query = shifted(bare, of_content, head, units, D, SHIFT)
        turned = shifted(bare, of_distance, head, units, D, SHIFT)
        start = num_tokens + block * N - begin
        scores = _scores(query, key, turned, tables, (text, head, start), units, num_tokens, D, BOTH, N)
        sees = _sees(mask, mask_strides, text, head, i, j, num_tokens, is_masked)
        top = tl.load(sums + program * num_columns + i)
        shares = tl.where(sees, tl.exp(scores * scale - top[:, None]), 0.0)
        g = rows_of(grad, grad_strides, text, head, i, units, num_tokens, D).to(query.dtype)
        seen = rows_of(out, out_strides, text, head, i, units, num_tokens, D)
        mean = tl.sum(g.to(tl.float32) * seen.to(tl.float32), 1)
        of_shares = tl.dot(g, tl.trans(value), input_precision="ieee")
        taken = shares
        if DROP:
            kept = _kept(seed, program, i, block * N, num_columns, P, ROUNDS, N)
            of_shares *= kept
            taken = shares * kept
        of_value += tl.dot(tl.trans(taken.to(g.dtype)), g, input_precision="ieee")
        of_scores = (shares * (of_shares - mean[:, None]) * scale).to(rows.dtype.element_ty)
        tl.store(rows + square + i[:, None] * num_columns + j[None, :], of_scores)
        tl.store(columns + square + j[:, None] * num_columns + i[None, :], tl.trans(of_scores))
        begin += N
    exists = (j < num_tokens)[:, None] & (units < D)[None, :]
    at = dv + text * dv_strides[0] + head * dv_strides[1] + j[:, None] * dv_strides[2] + units[None, :]
    rounded = of_value.to(dv.dtype.element_ty)
    tl.store(at, rounded, mask=exists)
    if not SHIFT:
        row = text * tl.num_programs(1) + block
        at = parts + row * parts_row + 2 * parts_kind + head * parts_head + units
        tl.store(at, tl.sum(rounded.to(tl.float32), 0), mask=units < D)
