"""Kernels of `nn.fast.shear`: scores by distance as scores by token, and the gradients, a tile a program."""

import triton
import triton.language as tl

# One kernel is built for all lengths, and for batches with and without a mask.
VARYING = ["num_tokens", "is_masked", "mask_text", "mask_head", "mask_row", "mask_column"]


@triton.jit
def _places(H: tl.constexpr, BLOCK: tl.constexpr):
    """Text and head of a program, and the tokens of its rows and of its columns."""
    text, head = (tl.program_id(0) // H).to(tl.int64), (tl.program_id(0) % H).to(tl.int64)
    tokens = tl.arange(0, BLOCK)
    return text, head, tl.program_id(1) * BLOCK + tokens, tl.program_id(2) * BLOCK + tokens


@triton.jit
def _start(base, strides, text, head):
    return base + text * strides[0] + head * strides[1]


@triton.jit
def _sees(mask, strides, text, head, i, j, exists, is_masked):
    """Which tokens i may see which tokens j."""
    at = _start(mask, strides, text, head) + i[:, None] * strides[2] + j[None, :] * strides[3]
    return tl.load(at, mask=exists & (is_masked != 0), other=1) != 0


@triton.jit(do_not_specialize=VARYING)
def shear_forward(
    first,
    second,
    mask,
    out,
    first_strides,
    second_strides,
    mask_text,
    mask_head,
    mask_row,
    mask_column,
    num_tokens,
    is_masked,
    scale,
    hidden,
    H: tl.constexpr,
    BOTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """out_ij = scale · (a_i,m + b_j,m) with m = T + j − i, or `hidden` where i may not see j."""
    text, head, i, j = _places(H, BLOCK)
    exists = (i < num_tokens)[:, None] & (j < num_tokens)[None, :]
    at = _start(first, first_strides, text, head) + i[:, None] * first_strides[2]
    score = tl.load(at + (num_tokens + j[None, :] - i[:, None]), mask=exists, other=0.0).to(tl.float32)
    if BOTH:
        # A row for each j: neighbouring threads read neighbouring numbers, and the tile is turned after that.
        turned = (j < num_tokens)[:, None] & (i < num_tokens)[None, :]
        at = _start(second, second_strides, text, head) + j[:, None] * second_strides[2]
        tile = tl.load(at + (num_tokens + j[:, None] - i[None, :]), mask=turned, other=0.0)
        score += tl.trans(tile.to(tl.float32))
    mask_strides = (mask_text, mask_head, mask_row, mask_column)
    sees = _sees(mask, mask_strides, text, head, i, j, exists, is_masked)
    score = tl.where(sees, score * scale, hidden)
    at = out + (tl.program_id(0).to(tl.int64) * num_tokens + i[:, None]) * num_tokens + j[None, :]
    tl.store(at, score.to(out.dtype.element_ty), mask=exists)


@triton.jit(do_not_specialize=VARYING)
def shear_backward(
    grad,
    mask,
    of_first,
    of_second,
    grad_strides,
    first_strides,
    second_strides,
    mask_text,
    mask_head,
    mask_row,
    mask_column,
    num_tokens,
    is_masked,
    scale,
    H: tl.constexpr,
    BOTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write each gradient to its distance m = T + j − i, and a zero to m' = (j − i) mod 2T.

    In a row, of one i or one j, the other token takes each m and each m' once: all 2T numbers are written.
    """
    text, head, i, j = _places(H, BLOCK)
    exists = (i < num_tokens)[:, None] & (j < num_tokens)[None, :]
    at = _start(grad, grad_strides, text, head) + i[:, None] * grad_strides[2] + j[None, :] * grad_strides[3]
    g = tl.load(at, mask=exists, other=0.0).to(tl.float32) * scale
    mask_strides = (mask_text, mask_head, mask_row, mask_column)
    g = tl.where(_sees(mask, mask_strides, text, head, i, j, exists, is_masked), g, 0.0)
    g = g.to(of_first.dtype.element_ty)
    zeros = tl.zeros_like(g)
    row = _start(of_first, first_strides, text, head) + i[:, None] * first_strides[2]
    distance = j[None, :] - i[:, None]
    tl.store(row + num_tokens + distance, g, mask=exists)
    tl.store(row + tl.where(distance < 0, distance + 2 * num_tokens, distance), zeros, mask=exists)
    if BOTH:
        turned = (j < num_tokens)[:, None] & (i < num_tokens)[None, :]
        row = _start(of_second, second_strides, text, head) + j[:, None] * second_strides[2]
        distance = j[:, None] - i[None, :]
        tl.store(row + num_tokens + distance, tl.trans(g), mask=turned)
        tl.store(row + tl.where(distance < 0, distance + 2 * num_tokens, distance), zeros, mask=turned)
