"""The forward kernel of `nn.fast.tiles`: N queries of a head of a text a program, over tiles of M keys."""

import triton
import triton.language as tl

from bermo.nn.fast.attend_bits_kernels import bits_of
from bermo.nn.fast.dropout_kernels import limit_of
from bermo.nn.fast.relative_kernels import rows_of

# One kernel is built for all lengths and seeds.
VARYING = ["num_tokens"]
# Of 32 keys, in the longest text.
GROUPS = tl.constexpr(16)
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def seen_at(seen, ends, text, head, seen_heads, padded):
    """The bits of what a head of a text may see, and up to which key."""
    number, count = text * seen_heads + head % seen_heads, padded // 32
    group = tl.arange(0, GROUPS)
    end = tl.max(tl.load(ends + number * count + group, mask=group < count, other=0), 0)
    return seen + number * count * padded, end


@triton.jit
def chosen(truths, values):
    """Values where it is true, else 0: by a product, since the compiler would choose among rounded values."""
    return values * tl.where(truths, 1.0, 0.0)


@triton.jit(do_not_specialize=VARYING)
def tiles_forward(
    q,
    k,
    v,
    seen,
    ends,
    kept,
    out,
    sums,
    q_strides,
    k_strides,
    v_strides,
    out_strides,
    seen_heads,
    num_tokens,
    padded,
    scale,
    P,
    H: tl.constexpr,
    D: tl.constexpr,
    N: tl.constexpr,
    M: tl.constexpr,
    WIDTH: tl.constexpr,
    DROP: tl.constexpr,
):
    """o of N queries of a head of a text, and the binary logarithm of the sum of their shares."""
    program, block = tl.program_id(0), tl.program_id(1)
    text, head = (program // H).to(tl.int64), (program % H).to(tl.int64)
    i, units = block * N + tl.arange(0, N), tl.arange(0, WIDTH)
    seen, end = seen_at(seen, ends, text, head, seen_heads, padded)
    kept += program.to(tl.int64) * (padded // 32) * padded
    query = rows_of(q, q_strides, text, head, i, units, num_tokens, D)
    top = tl.full([N], float("-inf"), tl.float32)
    total = tl.zeros([N], tl.float32)
    found = tl.zeros([N, WIDTH], tl.float32)
    for begin in range(0, end, M):
        j = begin + tl.arange(0, M)
        key = rows_of(k, k_strides, text, head, j, units, num_tokens, D)
        scores = tl.dot(query, tl.trans(key), input_precision="ieee") * (scale * LOG2E)
        sees = bits_of(seen, i, j, begin, padded, M, False)
        scores += tl.where(sees, 0.0, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        # A query that may see no key so far.
        finite = tl.where(higher == float("-inf"), 0.0, higher)
        shares = tl.exp2(scores - finite[:, None])
        shrunk = tl.exp2(top - finite)
        total = total * shrunk + tl.sum(shares, 1)
        if DROP:
            shares = chosen(bits_of(kept, i, j, begin, padded, M, False), shares)
        value = rows_of(v, v_strides, text, head, j, units, num_tokens, D)
        found = tl.dot(shares.to(value.dtype), value, found * shrunk[:, None], input_precision="ieee")
        top = higher
    sees_any = total > 0
    divisor = tl.where(sees_any, total, 1.0)
    _, grown = limit_of(P)
    result = found * (grown / divisor)[:, None]
    exists = (i < num_tokens)[:, None] & (units < D)[None, :]
    at = out + text * out_strides[0] + head * out_strides[1] + i[:, None] * out_strides[2] + units[None, :]
    tl.store(at, result.to(out.dtype.element_ty), mask=exists)
    # Of a query that sees nothing all shares are exp2(-inf).
    logarithm = tl.where(sees_any, top + tl.log2(divisor), float("inf"))
    tl.store(sums + program * padded + i, logarithm, mask=i < padded)
