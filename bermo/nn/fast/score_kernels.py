"""Triton kernels for GPUs over the scores of all masks; beside each stands its twin in plain torch.

draw_noise_          logit u of all hard-concrete masks                               twin: HardConcrete.draw_
HardConcreteKernels  W̃ = z ⊙ W, dW = z ⊙ G, dS = z' ⊙ W ⊙ G + the penalty's dS         twin: Shadow's loop
sum_sizes            Σ σ(S + shift) and how many weights are kept                     twin: size_penalty
count_over           how many σ(S) are over a threshold                               twin: soft_kept

    z = clamp(s(r − l) + l, 0, 1), s = σ((logit u + S)/β), z' = (r − l) s(1 − s)/β, 0 where z is clamped
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

from bermo.nn.fast.kernels import (
    IS_INTERPRETED,
    Chunks,
    addresses,
    elements_of,
    pointer_at,
    sigmoid,
    slope_of_size,
    values_at,
    views,
    write_copy,
)
from bermo.nn.masks import L0_BETA, L0_CLAMP, L0_LEFT, L0_RIGHT

LEFT, WIDTH = tl.constexpr(L0_LEFT), tl.constexpr(L0_RIGHT - L0_LEFT)
INVERSE = tl.constexpr(1 / L0_BETA)
CLAMP = tl.constexpr(L0_CLAMP)


@triton.jit
def _hard_concrete(score, noise):
    """z and z'."""
    chance = sigmoid((noise + score) * INVERSE)
    raw = chance * WIDTH + LEFT
    slope = tl.where((raw >= 0.0) & (raw <= 1.0), chance * (1.0 - chance) * (WIDTH * INVERSE), 0.0)
    return tl.minimum(tl.maximum(raw, 0.0), 1.0), slope


@triton.jit
def _logits(drawn, noises, offsets, tensors, starts, sizes, EVEN: tl.constexpr, LENGTH: tl.constexpr):
    """logit u of a chunk, from u in one flat buffer."""
    tensor, index, exists = elements_of(tl.program_id(0), tensors, starts, sizes, EVEN, LENGTH)
    offset = tl.multiple_of(tl.load(offsets + tensor), 16)
    u = tl.load(drawn + offset + index, mask=exists, other=0.5)
    u = tl.minimum(tl.maximum(u, CLAMP), 1.0 - CLAMP)
    odds = tl.math.div_rn(u, 1.0 - u)
    target = pointer_at(noises, tensor, tl.float32, EVEN)
    value = tl.log(odds) if IS_INTERPRETED else libdevice.log(odds)
    tl.store(target + index, value, mask=exists)


@triton.jit
def _copy_hard_concrete(
    weights,
    scores,
    noises,
    copies,
    tensors,
    starts,
    sizes,
    HALF: tl.constexpr,
    EVEN: tl.constexpr,
    LENGTH: tl.constexpr,
):
    """W̃ = z ⊙ W of a chunk, in float32 or (HALF) bfloat16."""
    tensor, index, exists = elements_of(tl.program_id(0), tensors, starts, sizes, EVEN, LENGTH)
    score = values_at(scores, tensor, index, exists, EVEN)
    value, _ = _hard_concrete(score, values_at(noises, tensor, index, exists, EVEN))
    copy = value * values_at(weights, tensor, index, exists, EVEN)
    write_copy(copies, tensor, index, exists, copy, HALF, EVEN)


@triton.jit
def _write_hard_concrete_grads(
    weights,
    scores,
    noises,
    grads,
    weight_grads,
    score_grads,
    offsets,
    penalty_grads,
    shares,
    shift,
    tensors,
    starts,
    sizes,
    num_models,
    EVEN: tl.constexpr,
    LENGTH: tl.constexpr,
):
    """dW = z ⊙ G and dS = z' ⊙ W ⊙ G + the penalty's of a chunk; all three lie in flat buffers."""
    tensor, index, exists = elements_of(tl.program_id(0), tensors, starts, sizes, EVEN, LENGTH)
    offset = tl.multiple_of(tl.load(offsets + tensor), 16)
    grad = tl.load(grads + offset + index, mask=exists, other=0.0).to(tl.float32)
    score = values_at(scores, tensor, index, exists, EVEN)
    value, slope = _hard_concrete(score, values_at(noises, tensor, index, exists, EVEN))
    weight = values_at(weights, tensor, index, exists, EVEN)
    pull = tl.load(penalty_grads + tensor % num_models) * tl.load(shares + tensor)
    tl.store(weight_grads + offset + index, grad * value, mask=exists)
    of_score = grad * weight * slope + pull * slope_of_size(score + shift)
    tl.store(score_grads + offset + index, of_score, mask=exists)


@triton.jit
def _sum_sizes(
    scores,
    masks,
    sums,
    counts,
    shift,
    tensors,
    starts,
    sizes,
    HARD: tl.constexpr,
    EVEN: tl.constexpr,
    LENGTH: tl.constexpr,
):
    """Σ σ(S + shift) of a chunk, and how many of its weights are kept; with HARD by z > 0 without noise."""
    chunk = tl.program_id(0)
    tensor, index, exists = elements_of(chunk, tensors, starts, sizes, EVEN, LENGTH)
    score = values_at(scores, tensor, index, exists, EVEN)
    tl.store(sums + chunk, tl.sum(tl.where(exists, sigmoid(score + shift), 0.0)))
    if HARD:
        is_kept = ((sigmoid(score) * WIDTH + LEFT > 0) & exists).to(tl.int32)
    else:
        source = pointer_at(masks, tensor, tl.int8, EVEN)
        is_kept = tl.load(source + index, mask=exists, other=0).to(tl.int32)
    tl.store(counts + chunk, tl.sum(is_kept))


@triton.jit
def _count_over(scores, threshold, counts, tensors, starts, sizes, EVEN: tl.constexpr, LENGTH: tl.constexpr):
    """How many σ(S) of a chunk are over the threshold."""
    chunk = tl.program_id(0)
    tensor, index, exists = elements_of(chunk, tensors, starts, sizes, EVEN, LENGTH)
    size = sigmoid(values_at(scores, tensor, index, exists, EVEN))
    is_over = (size > tl.load(threshold)) & exists
    tl.store(counts + chunk, tl.sum(is_over.to(tl.int32)))


@triton.jit
def _add_up(values, totals, first, num_chunks, SPAN: tl.constexpr):
    """Add up the numbers of a tensor's chunks, always in the same order."""
    tensor = tl.program_id(0)
    start, end = tl.load(first + tensor), tl.load(num_chunks + tensor)
    total, at = tl.zeros((SPAN,), values.dtype.element_ty), 0
    while at < end:
        index = at + tl.arange(0, SPAN)
        total += tl.load(values + start + index, mask=index < end, other=0)
        at += SPAN
    tl.store(totals + tensor, tl.sum(total))


def _totals(chunks: Chunks, values: Tensor) -> Tensor:
    """The sums of numbers of chunks over each tensor."""
    totals = values.new_empty(chunks.num_segments)
    _add_up[(chunks.num_segments,)](values, totals, chunks.first, chunks.num_chunks, SPAN=512)
    return totals


def draw_noise_(chunks: Chunks, drawn: Tensor, noises: Tensor) -> None:
    """Write logit u of all tensors, from one flat buffer of u; `noises` is a table of addresses."""
    _logits[(chunks.count,)](drawn, noises, chunks.offsets, *chunks.layout, **chunks.options())


def sum_sizes(chunks: Chunks, scores: Tensor, masks: Tensor | None, shift: float) -> tuple[Tensor, Tensor]:
    """Σ σ(S + shift) and the number kept, of each tensor; without `masks` the masks are hard-concrete."""
    sums = torch.empty(chunks.count, device=scores.device)
    counts = torch.empty(chunks.count, dtype=torch.int32, device=scores.device)
    _sum_sizes[(chunks.count,)](
        scores,
        scores if masks is None else masks,
        sums,
        counts,
        shift,
        *chunks.layout,
        HARD=masks is None,
        **chunks.options(),
    )
    return _totals(chunks, sums), _totals(chunks, counts)


def count_over(chunks: Chunks, scores: Tensor, threshold: Tensor) -> Tensor:
    """How many σ(S) of each tensor are over a threshold that lies on the device."""
    counts = torch.empty(chunks.count, dtype=torch.int32, device=scores.device)
    _count_over[(chunks.count,)](scores, threshold, counts, *chunks.layout, **chunks.options())
    return _totals(chunks, counts)


class HardConcreteKernels:
    """The masked copies z ⊙ W of all weights, and their gradients; no tensor may be moved afterwards."""

    def __init__(
        self, weights: Sequence[Tensor], noises: Sequence[Tensor], copies: Sequence[Tensor], penalty: Any
    ) -> None:
        """`penalty`, a `PenaltySize`, knows the scores, and how tensors are divided among models."""
        self.penalty, self.chunks = penalty, penalty.chunks
        tables = [addresses(penalty.split(tensors)) for tensors in (weights, noises, copies)]
        self.weights, self.noises, self.copies = tables
        self.chunks.check_alignment(*tables)
        self.whole = Chunks([weight.numel() for weight in weights], weights[0].device)

    def copy_(self, half: bool) -> None:
        """Write z ⊙ W of all tensors into their copies, in one launch."""
        _copy_hard_concrete[(self.chunks.count,)](
            self.weights,
            self.penalty.scores,
            self.noises,
            self.copies,
            *self.chunks.layout,
            HALF=half,
            **self.chunks.options(),
        )

    def grads(self, grads: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Return dW and dS of all tensors, flat, from one pass."""
        flat = torch.empty(self.chunks.total, dtype=grads[0].dtype, device=grads[0].device)
        torch._foreach_copy_(views(flat, self.whole, grads), [grad.flatten() for grad in grads])
        of_weights, of_scores = (torch.empty_like(flat, dtype=torch.float32) for _ in range(2))
        penalty = self.penalty
        _write_hard_concrete_grads[(self.chunks.count,)](
            self.weights,
            penalty.scores,
            self.noises,
            flat,
            of_weights,
            of_scores,
            self.chunks.offsets,
            penalty.grad,
            penalty.shares,
            penalty.shift,
            *self.chunks.layout,
            penalty.num_models,
            **self.chunks.options(),
        )
        return views(of_weights, self.whole, grads), views(of_scores, self.whole, grads)
