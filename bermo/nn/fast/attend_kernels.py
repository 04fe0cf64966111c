"""Kernels of `nn.fast.attend`: the attention of one head of one text, and its gradients, one program each."""

import triton
import triton.language as tl

# One kernel is built for all lengths of a tile, all seeds, and batches with and without padding. A second
# one for batches without a mask would be built inside a capture: transformers leaves out the mask of a full
# batch, but not while a graph is captured.
VARYING = ["seed", "num_tokens", "is_masked", "mask_text", "mask_head", "mask_row", "mask_column"]


@triton.jit
def _tile(base, strides, text, head, rows, columns, exists):
    """A head of a text, (tokens, units)."""
    start = base + text * strides[0] + head * strides[1]
    return tl.load(start + rows[:, None] * strides[2] + columns[None, :] * strides[3], mask=exists, other=0)


@triton.jit
def _shares(q, k, mask, strides, text, head, rows, num_tokens, is_masked, scale, ADDED: tl.constexpr):
    """p: how much of each key (column) a query (row) takes."""
    is_real = (rows < num_tokens)[:, None] & (rows < num_tokens)[None, :]
    is_read = is_real & (is_masked != 0)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    at = mask + text * strides[0] + head * strides[1]
    at += rows[:, None] * strides[2] + rows[None, :] * strides[3]
    if ADDED:
        scores += tl.load(at, mask=is_read, other=0.0).to(tl.float32)
    else:
        scores = tl.where(tl.load(at, mask=is_read, other=1) != 0, scores, float("-inf"))
    scores = tl.where((rows < num_tokens)[None, :], scores, float("-inf"))
    top = tl.max(scores, 1)
    # A query that may see no key.
    top = tl.where(top == float("-inf"), 0.0, top)
    grown = tl.exp(scores - top[:, None])
    total = tl.sum(grown, 1)
    return grown / tl.where(total > 0, total, 1.0)[:, None]


@triton.jit
def _kept(seed, program, rows, BLOCK: tl.constexpr, P, ROUNDS: tl.constexpr):
    """Dropout's factors of a tile; four neighbours share one draw of four random numbers."""
    quarters = tl.arange(0, BLOCK // 4)
    counter = (program * BLOCK + rows)[:, None] * (BLOCK // 4) + quarters[None, :]
    first, second, third, fourth = tl.rand4x(tl.load(seed), counter, ROUNDS)
    even = tl.join((first >= P).to(tl.int8), (third >= P).to(tl.int8))
    odd = tl.join((second >= P).to(tl.int8), (fourth >= P).to(tl.int8))
    is_kept = tl.reshape(tl.join(even, odd), (BLOCK, BLOCK))
    return tl.where(is_kept != 0, 1.0 / (1.0 - P), 0.0)


@triton.jit(do_not_specialize=VARYING)
def attend_forward(
    q,
    k,
    v,
    mask,
    seed,
    out,
    q_strides,
    k_strides,
    v_strides,
    mask_text,
    mask_head,
    mask_row,
    mask_column,
    num_tokens,
    is_masked,
    scale,
    H: tl.constexpr,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
    ADDED: tl.constexpr,
    P,
    DROP: tl.constexpr,
    ROUNDS: tl.constexpr,
):
    """o of one head of one text."""
    program = tl.program_id(0)
    text, head = (program // H).to(tl.int64), program % H
    rows, columns = tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    exists = (rows < num_tokens)[:, None] & (columns < D)[None, :]
    query = _tile(q, q_strides, text, head, rows, columns, exists)
    key = _tile(k, k_strides, text, head, rows, columns, exists)
    value = _tile(v, v_strides, text, head, rows, columns, exists)
    mask_strides = (mask_text, mask_head, mask_row, mask_column)
    p = _shares(query, key, mask, mask_strides, text, head, rows, num_tokens, is_masked, scale, ADDED)
    if DROP:
        p *= _kept(seed, program, rows, BLOCK, P, ROUNDS)
    output = tl.dot(p.to(value.dtype), value, input_precision="ieee")
    at = (text * num_tokens + rows[:, None]) * (H * D) + head * D + columns[None, :]
    tl.store(out + at, output.to(out.dtype.element_ty), mask=exists)


@triton.jit(do_not_specialize=VARYING)
def attend_backward(
    q,
    k,
    v,
    mask,
    seed,
    grad,
    dq,
    dk,
    dv,
    q_strides,
    k_strides,
    v_strides,
    grad_strides,
    mask_text,
    mask_head,
    mask_row,
    mask_column,
    num_tokens,
    is_masked,
    scale,
    H: tl.constexpr,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
    ADDED: tl.constexpr,
    P,
    DROP: tl.constexpr,
    ROUNDS: tl.constexpr,
):
    """dq, dk and dv of one head of one text."""
    program = tl.program_id(0)
    text, head = (program // H).to(tl.int64), program % H
    rows, columns = tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    exists = (rows < num_tokens)[:, None] & (columns < D)[None, :]
    at = (text * num_tokens + rows[:, None]) * (H * D) + head * D + columns[None, :]
    query = _tile(q, q_strides, text, head, rows, columns, exists)
    key = _tile(k, k_strides, text, head, rows, columns, exists)
    mask_strides = (mask_text, mask_head, mask_row, mask_column)
    p = _shares(query, key, mask, mask_strides, text, head, rows, num_tokens, is_masked, scale, ADDED)
    g = _tile(grad, grad_strides, text, head, rows, columns, exists).to(query.dtype)
    value = _tile(v, v_strides, text, head, rows, columns, exists)
    dp = tl.dot(g, tl.trans(value), input_precision="ieee")
    if DROP:
        kept = _kept(seed, program, rows, BLOCK, P, ROUNDS)
        dp *= kept
        taken = (p * kept).to(g.dtype)
    else:
        taken = p.to(g.dtype)
    of_value = tl.dot(tl.trans(taken), g, input_precision="ieee")
    tl.store(dv + at, of_value.to(dv.dtype.element_ty), mask=exists)
    ds = (p * (dp - tl.sum(p * dp, 1)[:, None]) * scale).to(query.dtype)
    of_query = tl.dot(ds, key, input_precision="ieee")
    tl.store(dq + at, of_query.to(dq.dtype.element_ty), mask=exists)
    of_key = tl.dot(tl.trans(ds), query, input_precision="ieee")
    tl.store(dk + at, of_key.to(dk.dtype.element_ty), mask=exists)
