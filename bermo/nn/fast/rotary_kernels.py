"""Kernels of `nn.fast.rotary`: queries and keys of a token rotated, and their gradients turned back."""

import triton
import triton.language as tl


@triton.jit
def _pairs(H: tl.constexpr, HALF: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr):
    """Where the first half of each head is in a token's (H, 2 HALF), its column, and which exist."""
    head, column = tl.arange(0, HEADS)[:, None], tl.arange(0, WIDTH)[None, :]
    return head * (2 * HALF) + column, column, (head < H) & (column < HALF)


@triton.jit
def _angles(cos, sin, token, column, HALF: tl.constexpr):
    """A token's cosines and sines of both halves."""
    at = token * (2 * HALF) + column
    is_half = column < HALF
    first_cos = tl.load(cos + at, mask=is_half, other=0.0).to(tl.float32)
    second_cos = tl.load(cos + at + HALF, mask=is_half, other=0.0).to(tl.float32)
    first_sin = tl.load(sin + at, mask=is_half, other=0.0).to(tl.float32)
    second_sin = tl.load(sin + at + HALF, mask=is_half, other=0.0).to(tl.float32)
    return first_cos, second_cos, first_sin, second_sin


@triton.jit(do_not_specialize=["num_angles"])
def rotary_forward(
    joined,
    cos,
    sin,
    num_angles,
    H: tl.constexpr,
    HALF: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Rotate the queries and keys of one token in place; joined holds q, k and v of each token."""
    D: tl.constexpr = 2 * HALF * H
    token = tl.program_id(0)
    at, column, exists = _pairs(H, HALF, HEADS, WIDTH)
    at += token.to(tl.int64) * (3 * D)
    q1 = tl.load(joined + at, mask=exists, other=0.0)
    q2 = tl.load(joined + at + HALF, mask=exists, other=0.0)
    k1 = tl.load(joined + at + D, mask=exists, other=0.0)
    k2 = tl.load(joined + at + D + HALF, mask=exists, other=0.0)
    c1, c2, s1, s2 = _angles(cos, sin, token % num_angles, column, HALF)
    kind = joined.dtype.element_ty
    q1, q2, k1, k2 = q1.to(tl.float32), q2.to(tl.float32), k1.to(tl.float32), k2.to(tl.float32)
    tl.store(joined + at, (q1 * c1 - q2 * s1).to(kind), mask=exists)
    tl.store(joined + at + HALF, (q2 * c2 + q1 * s2).to(kind), mask=exists)
    tl.store(joined + at + D, (k1 * c1 - k2 * s1).to(kind), mask=exists)
    tl.store(joined + at + D + HALF, (k2 * c2 + k1 * s2).to(kind), mask=exists)


@triton.jit(do_not_specialize=["num_angles"])
def rotary_backward(
    of_q,
    of_k,
    of_v,
    cos,
    sin,
    joined,
    step,
    num_angles,
    H: tl.constexpr,
    HALF: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Turn the gradients of one token's queries and keys back, and write all three side by side.

    The gradients of two tokens are `step` numbers from each other.
    """
    D: tl.constexpr = 2 * HALF * H
    token = tl.program_id(0)
    inside, column, exists = _pairs(H, HALF, HEADS, WIDTH)
    at = inside + token.to(tl.int64) * step
    q1 = tl.load(of_q + at, mask=exists, other=0.0)
    q2 = tl.load(of_q + at + HALF, mask=exists, other=0.0)
    k1 = tl.load(of_k + at, mask=exists, other=0.0)
    k2 = tl.load(of_k + at + HALF, mask=exists, other=0.0)
    v1 = tl.load(of_v + at, mask=exists, other=0.0)
    v2 = tl.load(of_v + at + HALF, mask=exists, other=0.0)
    c1, c2, s1, s2 = _angles(cos, sin, token % num_angles, column, HALF)
    kind = joined.dtype.element_ty
    q1, q2, k1, k2 = q1.to(tl.float32), q2.to(tl.float32), k1.to(tl.float32), k2.to(tl.float32)
    to = joined + inside + token.to(tl.int64) * (3 * D)
    tl.store(to, (q1 * c1 + q2 * s2).to(kind), mask=exists)
    tl.store(to + HALF, (q2 * c2 - q1 * s1).to(kind), mask=exists)
    tl.store(to + D, (k1 * c1 + k2 * s2).to(kind), mask=exists)
    tl.store(to + D + HALF, (k2 * c2 - k1 * s1).to(kind), mask=exists)
    tl.store(to + 2 * D, v1, mask=exists)
    tl.store(to + 2 * D + HALF, v2, mask=exists)
