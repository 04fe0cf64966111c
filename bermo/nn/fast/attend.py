"""Attention over short texts in one kernel each way, for graphics cards: a head of a text is one tile, and one program.

    p = softmax(scale · q kᵀ + mask)     o = (m ⊙ p) v         m: 0 with chance P, else 1 / (1 − P), from Philox
    dv = (m ⊙ p)ᵀ g     dp = m ⊙ (g vᵀ)     ds = p ⊙ (dp − Σ_j p dp)     dq = scale · ds k     dk = scale · dsᵀ q

All keys of a query lie in the tile, so the backward pass computes p again from q and k and needs nothing else: no output, no statistics,
no factors are kept. Sums and the softmax are in float32. A query that may see no key gives zeros, and so do its gradients.
What is given may lie in memory as it will; what is made lies as (texts, tokens, heads, size), so that joining the heads copies nothing.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from bermo.nn.fast.residual import LARGEST, ROUNDS
from bermo.nn.fast.serving import Asked, Serving

SHORTEST = 32  # tokens of a tile: one of 16, by one warp, computed nonsense on an H200 (Triton 3.6; LOG.md, 2026-11-15)
LONGEST = (
    64  # tokens of a text; at 128 torch is faster on an H200 (112 against 132 µs, results/attend-cuda.json)
)
WIDEST = 128  # units of a head
NUM_SEEDS = 32  # drawn at once: one launch is enough for most models

# One kernel serves all lengths of a tile, all seeds, and batches with and without padding. A kernel of their own for the latter would
# be built inside a capture: transformers leaves the mask of a full batch out, but not while a graph is captured.
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
    place = mask + text * strides[0] + head * strides[1]
    place += rows[:, None] * strides[2] + rows[None, :] * strides[3]
    if ADDED:
        scores += tl.load(place, mask=is_read, other=0.0).to(tl.float32)
    else:
        scores = tl.where(tl.load(place, mask=is_read, other=1) != 0, scores, float("-inf"))
    scores = tl.where((rows < num_tokens)[None, :], scores, float("-inf"))
    top = tl.max(scores, 1)
    top = tl.where(top == float("-inf"), 0.0, top)  # a query that may see no key
    grown = tl.exp(scores - top[:, None])
    total = tl.sum(grown, 1)
    return grown / tl.where(total > 0, total, 1.0)[:, None]


@triton.jit
def _kept(seed, program, rows, BLOCK: tl.constexpr, P, ROUNDS: tl.constexpr):
    """Dropout's factors of a tile; four neighbours share one draw of four random numbers."""
    quarters = tl.arange(0, BLOCK // 4)
    place = (program * BLOCK + rows)[:, None] * (BLOCK // 4) + quarters[None, :]
    first, second, third, fourth = tl.rand4x(tl.load(seed), place, ROUNDS)
    even = tl.join((first >= P).to(tl.int8), (third >= P).to(tl.int8))
    odd = tl.join((second >= P).to(tl.int8), (fourth >= P).to(tl.int8))
    is_kept = tl.reshape(tl.join(even, odd), (BLOCK, BLOCK))
    return tl.where(is_kept != 0, 1.0 / (1.0 - P), 0.0)


@triton.jit(do_not_specialize=VARYING)
def _attend_forward(
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
    """One head of one text."""
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
    found = tl.dot(p.to(value.dtype), value, input_precision="ieee")
    place = (text * num_tokens + rows[:, None]) * (H * D) + head * D + columns[None, :]
    tl.store(out + place, found.to(out.dtype.element_ty), mask=exists)


@triton.jit(do_not_specialize=VARYING)
def _attend_backward(
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
    """One head of one text."""
    program = tl.program_id(0)
    text, head = (program // H).to(tl.int64), program % H
    rows, columns = tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    exists = (rows < num_tokens)[:, None] & (columns < D)[None, :]
    place = (text * num_tokens + rows[:, None]) * (H * D) + head * D + columns[None, :]
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
    tl.store(dv + place, of_value.to(dv.dtype.element_ty), mask=exists)
    ds = (p * (dp - tl.sum(p * dp, 1)[:, None]) * scale).to(query.dtype)
    of_query = tl.dot(ds, key, input_precision="ieee")
    tl.store(dq + place, of_query.to(dq.dtype.element_ty), mask=exists)
    of_key = tl.dot(tl.trans(ds), query, input_precision="ieee")
    tl.store(dk + place, of_key.to(dk.dtype.element_ty), mask=exists)


def sizes(num_tokens: int, size: int) -> dict[str, int]:
    """The tile of a head, and how many warps work on it."""
    block = max(SHORTEST, triton.next_power_of_2(num_tokens))
    width = max(16, triton.next_power_of_2(size))
    return {"BLOCK": block, "WIDTH": width, "num_warps": {32: 2, 64: 4}.get(block, 8)}


class Attend(torch.autograd.Function):
    """(q, k, v, mask, seed, p, scale) -> o; see `attend`."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        seed: Tensor,
        p: float,
        scale: float,
    ) -> Tensor:
        texts, heads, num_tokens, size = q.shape
        added = mask is not None and mask.dtype != torch.bool
        if mask is not None:
            mask = mask.expand(texts, heads, num_tokens, num_tokens)
            mask = mask if added else mask.view(torch.uint8)
        out = _empty_like(q)
        options = dict(
            H=heads, D=size, ADDED=added, P=p, DROP=p > 0, ROUNDS=ROUNDS, **sizes(num_tokens, size)
        )
        _attend_forward[(texts * heads,)](
            q,
            k,
            v,
            _mask_or_any(mask, out),
            seed,
            out,
            q.stride(),
            k.stride(),
            v.stride(),
            *_strides(mask),
            num_tokens,
            int(mask is not None),
            scale,
            **options,
        )
        ctx.save_for_backward(q, k, v, mask, seed)
        ctx.options, ctx.scale = options, scale
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        q, k, v, mask, seed = ctx.saved_tensors
        texts, heads, num_tokens, _ = q.shape
        dq, dk, dv = _empty_like(q), _empty_like(k), _empty_like(v)
        _attend_backward[(texts * heads,)](
            q,
            k,
            v,
            _mask_or_any(mask, dq),
            seed,
            grad,
            dq,
            dk,
            dv,
            q.stride(),
            k.stride(),
            v.stride(),
            grad.stride(),
            *_strides(mask),
            num_tokens,
            int(mask is not None),
            ctx.scale,
            **ctx.options,
        )
        return dq, dk, dv, None, None, None, None


def _empty_like(x: Tensor) -> Tensor:
    """Room for a tensor (B, H, T, D) that lies as (B, T, H, D)."""
    texts, heads, num_tokens, size = x.shape
    return x.new_empty(texts, num_tokens, heads, size).transpose(1, 2)


def _mask_or_any(mask: Tensor | None, made: Tensor) -> Tensor:
    """The mask, or some bytes that the kernels will not read."""
    return made.transpose(1, 2).view(torch.uint8) if mask is None else mask


def _strides(mask: Tensor | None) -> tuple[int, ...]:
    return (0, 0, 0, 0) if mask is None else mask.stride()


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    seed: Tensor | None = None,
    p: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Attention of (B, H, T, D), with dropout by a seed, one int64 on the device; a bool mask tells what is seen, another is added."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    found: Tensor = Attend.apply(q, k, v, mask, q if seed is None else seed, p, scale)
    return found


def can_attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> bool:
    """Tell whether the kernels can serve: short texts of one dtype, a mask that takes no gradient."""
    if q.dim() != 4 or not q.shape == k.shape == v.shape or not q.dtype == k.dtype == v.dtype:
        return False
    texts, heads, num_tokens, size = q.shape
    # Triton's interpreter would multiply the bits of bfloat16 as integers.
    is_half = q.dtype == torch.bfloat16
    is_here = is_half if q.is_cuda else triton.knobs.runtime.interpret and not is_half
    fits = 0 < num_tokens <= LONGEST and 0 < size <= WIDEST and q.numel() > 0
    num_places = texts * heads * LONGEST * LONGEST // 4
    return is_here and fits and num_places < LARGEST and _can_mask(q, mask)


def _can_mask(q: Tensor, mask: Tensor | None) -> bool:
    if mask is None:
        return True
    full = (*q.shape[:3], q.shape[2])
    return (
        mask.device == q.device
        and not mask.requires_grad
        and (mask.dtype == torch.bool or mask.is_floating_point())
        and mask.dim() <= 4
        and all(a in (1, b) for a, b in zip(mask.shape[::-1], full[::-1], strict=False))
    )


def attend_twin(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, kept: Tensor | float, scale: float
) -> Tensor:
    """The same in plain torch; `kept` holds dropout's factors."""
    scores = (q @ k.transpose(-1, -2)).float() * scale
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, float("-inf"))
    elif mask is not None:
        scores = scores + mask
    sees = (scores > float("-inf")).any(-1, keepdim=True)
    p = scores.masked_fill(~sees, 0.0).softmax(-1) * sees
    return (p * kept).to(v.dtype) @ v


class Attending(Serving):
    """While this holds, torch's attention is computed by the kernels above where they can serve."""

    def __init__(self) -> None:
        super().__init__()
        self.seeds = torch.empty(0)
        self.num_calls = 0

    def attention(self, asked: Asked) -> Tensor | None:
        """The attention, or None where torch has to compute it."""
        q, k, v, mask = asked.q, asked.k, asked.v, asked.mask
        if asked.is_causal or not can_attend(q, k, v, mask):
            return None
        seed = self._seed(q.device) if asked.p > 0 else None
        return attend(q, k, v, mask, seed, asked.p, asked.scale)

    def _seed(self, device: torch.device) -> Tensor:
        """A new seed for each call, drawn by torch's generator on the device, so that a replayed graph draws anew."""
        place = self.num_calls % NUM_SEEDS
        if place == 0:
            self.seeds = torch.randint(0, 2**62, (NUM_SEEDS,), device=device)
        self.num_calls += 1
        return self.seeds[place : place + 1]
