"""Triton kernels over the scores of all masks at once, for graphics cards; their twins are in plain torch, named beside them.

draw_noise_  logit u of all hard-concrete masks                                  twin: Noise
GateKernels  W̃ = z ⊙ W, then dW = z ⊙ G and dS = z' ⊙ W ⊙ G + the penalty's own  twin: Shadow's loop
             z = clamp(s(r − l) + l, 0, 1), s = σ((logit u + S)/β), z' = (r − l) s(1 − s)/β, 0 where clamped
sum_sizes    Σ σ(S + shift) and how many weights are kept                        twin: the masks' size_penalty
count_over   how many σ(S) are over a threshold                                  twin: soft_kept
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
    places_of,
    pointer_at,
    sigmoid,
    slope_of_size,
    values_at,
    views,
)
from bermo.nn.masks import L0_BETA, L0_CLAMP, L0_LEFT, L0_RIGHT

LEFT, WIDTH = tl.constexpr(L0_LEFT), tl.constexpr(L0_RIGHT - L0_LEFT)
INVERSE = tl.constexpr(1 / L0_BETA)
CLAMP = tl.constexpr(L0_CLAMP)


@triton.jit
def _gate(score, noise):
    """A hard-concrete gate and its slope."""
    chance = sigmoid((noise + score) * INVERSE)
    raw = chance * WIDTH + LEFT
    slope = tl.where((raw >= 0.0) & (raw <= 1.0), chance * (1.0 - chance) * (WIDTH * INVERSE), 0.0)
    return tl.minimum(tl.maximum(raw, 0.0), 1.0), slope


@triton.jit
def _logits(drawn, noises, offsets, tensors, starts, sizes, EVEN: tl.constexpr, LENGTH: tl.constexpr):
    tensor, places, exists = places_of(tl.program_id(0), tensors, starts, sizes, EVEN, LENGTH)
    offset = tl.multiple_of(tl.load(offsets + tensor), 16)
    u = tl.load(drawn + offset + places, mask=exists, other=0.5)
    u = tl.minimum(tl.maximum(u, CLAMP), 1.0 - CLAMP)
    odds = tl.math.div_rn(u, 1.0 - u)
    target = pointer_at(noises, tensor, tl.float32, EVEN)
    value = tl.log(odds) if IS_INTERPRETED else libdevice.log(odds)
    tl.store(target + places, value, mask=exists)


@triton.jit
def _copy_gated(
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
    tensor, places, exists = places_of(tl.program_id(0), tensors, starts, sizes, EVEN, LENGTH)
    score = values_at(scores, tensor, places, exists, EVEN)
    gate, _ = _gate(score, values_at(noises, tensor, places, exists, EVEN))
    gated = gate * values_at(weights, tensor, places, exists, EVEN)
    if HALF:
        target = pointer_at(copies, tensor, tl.bfloat16, EVEN)
        tl.store(target + places, gated.to(tl.bfloat16), mask=exists)
    else:
        target = pointer_at(copies, tensor, tl.float32, EVEN)
        tl.store(target + places, gated, mask=exists)


@triton.jit
def _write_gate_grads(
    weights,
    scores,
    noises,
    grads,
    weight_grads,
    score_grads,
    offsets,
    pulls,
    shares,
    shift,
    tensors,
    starts,
    sizes,
    num_models,
    EVEN: tl.constexpr,
    LENGTH: tl.constexpr,
):
    tensor, places, exists = places_of(tl.program_id(0), tensors, starts, sizes, EVEN, LENGTH)
    offset = tl.multiple_of(tl.load(offsets + tensor), 16)
    grad = tl.load(grads + offset + places, mask=exists, other=0.0).to(tl.float32)
    score = values_at(scores, tensor, places, exists, EVEN)
    gate, slope = _gate(score, values_at(noises, tensor, places, exists, EVEN))
    weight = values_at(weights, tensor, places, exists, EVEN)
    pull = tl.load(pulls + tensor % num_models) * tl.load(shares + tensor)
    tl.store(weight_grads + offset + places, grad * gate, mask=exists)
    of_score = grad * weight * slope + pull * slope_of_size(score + shift)
    tl.store(score_grads + offset + places, of_score, mask=exists)


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
    GATED: tl.constexpr,
    EVEN: tl.constexpr,
    LENGTH: tl.constexpr,
):
    """Σ σ(S + shift) of a chunk, and how many of its weights are kept: of gates, how many are open after training."""
    chunk = tl.program_id(0)
    tensor, places, exists = places_of(chunk, tensors, starts, sizes, EVEN, LENGTH)
    score = values_at(scores, tensor, places, exists, EVEN)
    tl.store(sums + chunk, tl.sum(tl.where(exists, sigmoid(score + shift), 0.0)))
    if GATED:
        is_kept = ((sigmoid(score) * WIDTH + LEFT > 0) & exists).to(tl.int32)
    else:
        source = pointer_at(masks, tensor, tl.int8, EVEN)
        is_kept = tl.load(source + places, mask=exists, other=0).to(tl.int32)
    tl.store(counts + chunk, tl.sum(is_kept))


@triton.jit
def _count_over(scores, threshold, counts, tensors, starts, sizes, EVEN: tl.constexpr, LENGTH: tl.constexpr):
    chunk = tl.program_id(0)
    tensor, places, exists = places_of(chunk, tensors, starts, sizes, EVEN, LENGTH)
    size = sigmoid(values_at(scores, tensor, places, exists, EVEN))
    is_over = (size > tl.load(threshold)) & exists
    tl.store(counts + chunk, tl.sum(is_over.to(tl.int32)))


@triton.jit
def _add_up(values, totals, first, num_chunks, SPAN: tl.constexpr):
    """Add up the numbers of a tensor's chunks, always in the same order."""
    tensor = tl.program_id(0)
    start, end = tl.load(first + tensor), tl.load(num_chunks + tensor)
    total, at = tl.zeros((SPAN,), values.dtype.element_ty), 0
    while at < end:
        places = at + tl.arange(0, SPAN)
        total += tl.load(values + start + places, mask=places < end, other=0)
        at += SPAN
    tl.store(totals + tensor, tl.sum(total))


def _totals(chunks: Chunks, values: Tensor) -> Tensor:
    """The sums of numbers of chunks over each tensor."""
    found = values.new_empty(chunks.num_segments)
    _add_up[(chunks.num_segments,)](values, found, chunks.first, chunks.num_chunks, SPAN=512)
    return found


def draw_noise_(chunks: Chunks, drawn: Tensor, noises: Tensor) -> None:
    """Write logit u of all tensors, from one flat buffer of u; `noises` is a table of addresses."""
    _logits[(chunks.count,)](drawn, noises, chunks.offsets, *chunks.layout, **chunks.options())


def sum_sizes(chunks: Chunks, scores: Tensor, masks: Tensor | None, shift: float) -> tuple[Tensor, Tensor]:
    """Σ σ(S + shift) and the number kept, of each tensor; without masks the scores are those of gates."""
    sums = torch.empty(chunks.count, device=scores.device)
    counts = torch.empty(chunks.count, dtype=torch.int32, device=scores.device)
    _sum_sizes[(chunks.count,)](
        scores,
        scores if masks is None else masks,
        sums,
        counts,
        shift,
        *chunks.layout,
        GATED=masks is None,
        **chunks.options(),
    )
    return _totals(chunks, sums), _totals(chunks, counts)


def count_over(chunks: Chunks, scores: Tensor, threshold: Tensor) -> Tensor:
    """How many σ(S) of each tensor are over a threshold that lies on the device."""
    counts = torch.empty(chunks.count, dtype=torch.int32, device=scores.device)
    _count_over[(chunks.count,)](scores, threshold, counts, *chunks.layout, **chunks.options())
    return _totals(chunks, counts)


class GateKernels:
    """The gated copies of all weights and their gradients; all tensors must stay where they are."""

    def __init__(
        self, weights: Sequence[Tensor], noises: Sequence[Tensor], copies: Sequence[Tensor], sizes: Any
    ) -> None:
        """`sizes` (`nn.penalty.Sizes`) knows the scores, and how tensors are cut into models."""
        self.sizes, self.chunks = sizes, sizes.chunks
        tables = [addresses(sizes.cut(tensors)) for tensors in (weights, noises, copies)]
        self.weights, self.noises, self.copies = tables
        self.chunks.look_at(*tables)
        self.places = Chunks([weight.numel() for weight in weights], weights[0].device)

    def copy_(self, half: bool) -> None:
        """Write z ⊙ W of all tensors into their copies, in one launch."""
        _copy_gated[(self.chunks.count,)](
            self.weights,
            self.sizes.scores,
            self.noises,
            self.copies,
            *self.chunks.layout,
            HALF=half,
            **self.chunks.options(),
        )

    def grads(self, grads: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Return dW and dS of all tensors, flat, from one pass."""
        flat = torch.empty(self.chunks.total, dtype=grads[0].dtype, device=grads[0].device)
        torch._foreach_copy_(views(flat, self.places, grads), [grad.flatten() for grad in grads])
        of_weights, of_scores = (torch.empty_like(flat, dtype=torch.float32) for _ in range(2))
        sizes = self.sizes
        _write_gate_grads[(self.chunks.count,)](
            self.weights,
            sizes.scores,
            self.noises,
            flat,
            of_weights,
            of_scores,
            self.chunks.offsets,
            sizes.pull,
            sizes.shares,
            sizes.shift,
            *self.chunks.layout,
            sizes.num_models,
            **self.chunks.options(),
        )
        return views(of_weights, self.places, grads), views(of_scores, self.places, grads)
