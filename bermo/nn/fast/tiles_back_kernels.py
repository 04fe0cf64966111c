"""The backward kernels of `nn.fast.tiles`: of N keys, or N queries, of a head of a text a program.

Each also writes the sums of its gradients over the tokens of its tile, which a bias of the product wants: by
a product with ones, since the rows of a tile lie in many threads.
"""

import triton
import triton.language as tl

from bermo.nn.fast.attend_bits_kernels import bits_of
from bermo.nn.fast.dropout_kernels import limit_of
from bermo.nn.fast.relative_kernels import rows_of
from bermo.nn.fast.tiles_kernels import LOG2E, VARYING, chosen, seen_at


@triton.jit
def _write(
    base,
    strides,
    parts,
    text,
    head,
    rows,
    units,
    tile,
    num_tokens,
    H: tl.constexpr,
    D: tl.constexpr,
    N: tl.constexpr,
):
    """Write N rows of a head's gradient, and the sums of what was written over the rows."""
    tile = tile.to(base.dtype.element_ty)
    at = base + text * strides[0] + head * strides[1] + rows[:, None] * strides[2] + units[None, :]
    tl.store(at, tile, mask=(rows < num_tokens)[:, None] & (units < D)[None, :])
    copy = tl.arange(0, 64)
    total = tl.dot(tl.full([64, N], 1.0, tile.dtype), tile, input_precision="ieee")
    at = parts + (text * tl.num_programs(1) + tl.program_id(1)) * (3 * H * D) + head * D
    is_first = (copy == 0)[:, None] & (units < D)[None, :]
    tl.store(at + copy[:, None] * 0 + units[None, :], total, mask=is_first)


@triton.jit(do_not_specialize=VARYING)
def tiles_of_keys(
    q,
    k,
    v,
    seen,
    ends,
    kept,
    out,
    sums,
    grad,
    dq,
    dk,
    dv,
    parts,
    q_strides,
    k_strides,
    v_strides,
    out_strides,
    grad_strides,
    d_strides,
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
    WHOLE: tl.constexpr,
):
    """dk and dv of N keys, over tiles of M queries, whose pairs have a row for each key.

    Where these are all keys of a text (WHOLE), and M = N, dq comes with them.
    """
    program, block = tl.program_id(0), tl.program_id(1)
    text, head = (program // H).to(tl.int64), (program % H).to(tl.int64)
    j, units = block * N + tl.arange(0, N), tl.arange(0, WIDTH)
    seen, end = seen_at(seen, ends, text, head, seen_heads, padded)
    kept += program.to(tl.int64) * (padded // 32) * padded
    key = rows_of(k, k_strides, text, head, j, units, num_tokens, D)
    value = rows_of(v, v_strides, text, head, j, units, num_tokens, D)
    _, grown = limit_of(P)
    of_key = tl.zeros([N, WIDTH], tl.float32)
    of_value = tl.zeros([N, WIDTH], tl.float32)
    # Keys that no query sees have no gradient.
    last = M if WHOLE else tl.where(block * N < end, num_tokens, 0)
    for begin in range(0, last, M):
        i = begin + tl.arange(0, M)
        query = rows_of(q, q_strides, text, head, i, units, num_tokens, D)
        g = rows_of(grad, grad_strides, text, head, i, units, num_tokens, D).to(query.dtype)
        result = rows_of(out, out_strides, text, head, i, units, num_tokens, D)
        mean = tl.sum(result.to(tl.float32) * g.to(tl.float32), 1)
        top = tl.load(sums + program * padded + i, mask=i < num_tokens, other=float("inf"))
        scores = tl.dot(key, tl.trans(query), input_precision="ieee") * (scale * LOG2E)
        sees = bits_of(seen, i, j, block * N, padded, N, True)
        shares = tl.exp2(scores + tl.where(sees, 0.0, float("-inf")) - top[None, :])
        of_shares = tl.dot(value, tl.trans(g), input_precision="ieee")
        taken = shares
        if DROP:
            taken = chosen(bits_of(kept, i, j, block * N, padded, N, True), shares)
        of_scores = taken * (of_shares * grown) - shares * mean[None, :]
        of_value = tl.dot(taken.to(g.dtype), g, of_value, input_precision="ieee")
        of_scores = of_scores.to(query.dtype)
        of_key = tl.dot(of_scores, query, of_key, input_precision="ieee")
        if WHOLE:
            of_query = tl.dot(tl.trans(of_scores), key, input_precision="ieee")
            _write(dq, d_strides, parts, text, head, i, units, of_query * scale, num_tokens, H, D, M)
    parts += H * D
    _write(dk, d_strides, parts, text, head, j, units, of_key * scale, num_tokens, H, D, N)
    _write(dv, d_strides, parts + H * D, text, head, j, units, of_value * grown, num_tokens, H, D, N)


@triton.jit(do_not_specialize=VARYING)
def tiles_of_queries(
    q,
    k,
    v,
    seen,
    ends,
    kept,
    out,
    sums,
    grad,
    dq,
    parts,
    q_strides,
    k_strides,
    v_strides,
    out_strides,
    grad_strides,
    d_strides,
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
    """dq of N queries, over tiles of M keys."""
    program, block = tl.program_id(0), tl.program_id(1)
    text, head = (program // H).to(tl.int64), (program % H).to(tl.int64)
    i, units = block * N + tl.arange(0, N), tl.arange(0, WIDTH)
    seen, end = seen_at(seen, ends, text, head, seen_heads, padded)
    kept += program.to(tl.int64) * (padded // 32) * padded
    query = rows_of(q, q_strides, text, head, i, units, num_tokens, D)
    g = rows_of(grad, grad_strides, text, head, i, units, num_tokens, D).to(query.dtype)
    result = rows_of(out, out_strides, text, head, i, units, num_tokens, D)
    mean = tl.sum(result.to(tl.float32) * g.to(tl.float32), 1)
    top = tl.load(sums + program * padded + i, mask=i < num_tokens, other=float("inf"))
    _, grown = limit_of(P)
    of_query = tl.zeros([N, WIDTH], tl.float32)
    for begin in range(0, end, M):
        j = begin + tl.arange(0, M)
        key = rows_of(k, k_strides, text, head, j, units, num_tokens, D)
        value = rows_of(v, v_strides, text, head, j, units, num_tokens, D)
        scores = tl.dot(query, tl.trans(key), input_precision="ieee") * (scale * LOG2E)
        sees = bits_of(seen, i, j, begin, padded, M, False)
        shares = tl.exp2(scores + tl.where(sees, 0.0, float("-inf")) - top[:, None])
        of_shares = tl.dot(g, tl.trans(value), input_precision="ieee")
        taken = shares
        if DROP:
            taken = chosen(bits_of(kept, i, j, begin, padded, M, False), shares)
        of_scores = taken * (of_shares * grown) - shares * mean[:, None]
        of_query = tl.dot(of_scores.to(key.dtype), key, of_query, input_precision="ieee")
    _write(dq, d_strides, parts, text, head, i, units, of_query * scale, num_tokens, H, D, N)
