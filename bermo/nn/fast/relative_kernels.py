"""Forward kernel of `nn.fast.relative`: attention to contents and to distances, N queries a program.

A tile has N rows i and N columns j, and its pairs have 2 N distances: with m₀ = T + first j − first i, column
t of the upper half is m₀ + t and of the lower half m₀ − N + t. Pair (i, j) is at t = (j − i) mod N of the
upper half where j ≥ i and of the lower half elsewhere: one turn of the rows of a tile moves all of them. The
lower half of a tile is the upper half of its neighbour, one tile nearer to the first token.
"""

import triton
import triton.language as tl

from bermo.nn.fast.dropout_kernels import limit_of

# One kernel is built for all seeds, for all lengths of so many tiles, and for one mask or one for each text.
VARYING = ["seed", "num_tokens", "sees_text", "sees_head"]


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
def apart_vector(segments, head, units, H: tl.constexpr, D: tl.constexpr):
    """What a key of another segment is, less what one of the same is."""
    at = segments + head * D + units
    same = tl.load(at, mask=units < D, other=0.0)
    return tl.load(at + H * D, mask=units < D, other=0.0).to(tl.float32) - same.to(tl.float32)


@triton.jit
def table_rows(table, strides, at, units, num_tokens, D: tl.constexpr, N: tl.constexpr):
    """N rows of a table, from a distance on."""
    text, head, start = at
    return rows_of(table, strides, text, head, start + tl.arange(0, N), units, 2 * num_tokens, D)


@triton.jit
def turn(tile, place, N: tl.constexpr):
    """tile[i, p] for p = place[i, j] and place[i, j] + N / 2 (mod N), j below N / 2: two numbers as one."""
    BITS: tl.constexpr = tile.dtype.primitive_bitwidth
    narrow: tl.constexpr = tl.uint16 if BITS == 16 else tl.uint32
    wide: tl.constexpr = tl.uint32 if BITS == 16 else tl.uint64
    HALF: tl.constexpr = N // 2
    low, high = tl.split(tl.permute(tl.reshape(tile, (N, 2, HALF)), (0, 2, 1)))
    words = low.to(narrow, bitcast=True).to(wide) | (high.to(narrow, bitcast=True).to(wide) << BITS)
    words = tl.gather(words, place & (HALF - 1), 1)
    low = words.to(narrow).to(tile.dtype, bitcast=True)
    high = (words >> BITS).to(narrow).to(tile.dtype, bitcast=True)
    is_swapped = (place & HALF) != 0
    both = tl.join(tl.where(is_swapped, high, low), tl.where(is_swapped, low, high))
    return tl.reshape(tl.permute(both, (0, 2, 1)), (N, N))


@triton.jit
def _of_distances(tokens, table, strides, at, units, num_tokens, D: tl.constexpr, N: tl.constexpr):
    """What tokens say of N distances, rounded before it moves."""
    rows = table_rows(table, strides, at, units, num_tokens, D, N)
    return tl.dot(tokens, tl.trans(rows), input_precision="ieee").to(tokens.dtype)


@triton.jit
def _is_kept(seed, row, first_j, num_columns, limit, ROUNDS: tl.constexpr, N: tl.constexpr):
    """Which pairs of a tile dropout keeps; eight neighbours share one draw of four random numbers."""
    eighths = first_j // 8 + tl.arange(0, N // 8)
    counter = row[:, None] * (num_columns // 8) + eighths[None, :]
    one, two, three, four = tl.randint4x(tl.load(seed), counter, ROUNDS)
    # The upper 16 bits of each number, then the lower ones.
    first = tl.join((one >= limit).to(tl.int8), (three >= limit).to(tl.int8))
    second = tl.join((two >= limit).to(tl.int8), (four >= limit).to(tl.int8))
    third = tl.join(((one << 16) >= limit).to(tl.int8), ((three << 16) >= limit).to(tl.int8))
    fourth = tl.join(((two << 16) >= limit).to(tl.int8), ((four << 16) >= limit).to(tl.int8))
    return tl.reshape(tl.join(tl.join(first, third), tl.join(second, fourth)), (N, N)) != 0


@triton.jit(do_not_specialize=VARYING)
def relative_forward(
    q,
    k,
    v,
    first,
    second,
    of_content,
    of_distance,
    of_segment,
    segments,
    sees,
    seed,
    out,
    shares,
    tops,
    sums,
    strides,
    first_strides,
    second_strides,
    out_strides,
    sees_text,
    sees_head,
    num_tokens,
    scale,
    P,
    H: tl.constexpr,
    D: tl.constexpr,
    SHIFT: tl.constexpr,
    APART: tl.constexpr,
    DROP: tl.constexpr,
    ROUNDS: tl.constexpr,
    BLOCKS: tl.constexpr,
    N: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """o of N queries of a head of a text, and for the way back their exponentials.

    Those of a tile are relative to 2 to the number in `tops`, and negative where dropout takes them. `sums`
    has the logarithm (base 2) of the sum of each query's.
    """
    program, block = tl.program_id(0), tl.program_id(1)
    text, head = (program // H).to(tl.int64), (program % H).to(tl.int64)
    t, units = tl.arange(0, N), tl.arange(0, WIDTH)
    C: tl.constexpr = BLOCKS * N
    i = block * N + t
    visible = sees + (text * sees_text + head * sees_head) * (C * C) + i[:, None] * C
    square = shares + program.to(tl.int64) * (C * C) + i[:, None] * C
    bare = rows_of(q, strides, text, head, i, units, num_tokens, D)
    query = shifted(bare, of_content, head, units, D, SHIFT)
    turned = shifted(bare, of_distance, head, units, D, SHIFT)
    if APART:
        tokens = shifted(bare, of_segment, head, units, D, SHIFT).to(tl.float32)
        apart = tl.sum(tokens * apart_vector(segments, head, units, H, D)[None, :], 1)
    limit, factor = limit_of(P)
    # Exponentials are of base 2.
    rate = scale * 1.4426950408889634
    top = tl.full([N], float("-inf"), tl.float32)
    total = tl.zeros([N], tl.float32)
    found = tl.zeros([N, WIDTH], tl.float32)
    half = tl.arange(0, N // 2)
    at = (text, head, num_tokens - N - block * N)
    below = _of_distances(turned, first, first_strides, at, units, num_tokens, D, N)
    for number in range(BLOCKS):
        begin = number * N
        j = begin + t
        key = rows_of(k, strides, text, head, j, units, num_tokens, D)
        scores = tl.dot(query, tl.trans(key), input_precision="ieee")
        at = (text, head, num_tokens + begin - block * N)
        above = _of_distances(turned, first, first_strides, at, units, num_tokens, D, N)
        chosen = tl.where(t[:, None] + t[None, :] < N, above, below)
        scores += turn(chosen, (half[None, :] - t[:, None]) & (N - 1), N)
        below = above
        if not SHIFT:
            near = _of_distances(key, second, second_strides, at, units, num_tokens, D, N)
            at = (text, head, num_tokens + begin - block * N - N)
            far = _of_distances(key, second, second_strides, at, units, num_tokens, D, N)
            chosen = tl.where(t[None, :] <= t[:, None], near, far)
            scores += tl.trans(turn(chosen, (t[:, None] - half[None, :]) & (N - 1), N))
        seen = tl.load(visible + j[None, :])
        if APART:
            scores += tl.where(seen > 1, apart[:, None], 0.0)
        scores = tl.where((seen & 1) != 0, scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        # A query that may see no key so far.
        finite = tl.where(higher == float("-inf"), 0.0, higher)
        grown = tl.exp2(scores * rate - (finite * rate)[:, None])
        shrunk = tl.exp2((top - finite) * rate)
        total = total * shrunk + tl.sum(grown, 1)
        taken = grown
        if DROP:
            is_kept = _is_kept(seed, program * C + i, begin, C, limit, ROUNDS, N)
            taken = tl.where(is_kept, grown, 0.0)
            grown = tl.where(is_kept, grown, -grown)
        tl.store(square + j[None, :], grown.to(shares.dtype.element_ty))
        tl.store(tops + (program * BLOCKS + number) * C + i, finite * rate)
        value = rows_of(v, strides, text, head, j, units, num_tokens, D)
        found = found * shrunk[:, None] + tl.dot(taken.to(value.dtype), value, input_precision="ieee")
        top = higher
    sees_any = total > 0
    divisor = tl.where(sees_any, total, 1.0)
    exists = (i < num_tokens)[:, None] & (units < D)[None, :]
    to = out + text * out_strides[0] + head * out_strides[1] + i[:, None] * out_strides[2] + units[None, :]
    tl.store(to, (found * (factor / divisor)[:, None]).to(out.dtype.element_ty), mask=exists)
    tl.store(sums + program * C + i, tl.where(sees_any, top * rate + tl.log2(divisor), 0.0))
