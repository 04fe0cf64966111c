"""Kernels of `nn.fast.adam`: the norms of the gradients, and the update of weights and scores.

Table `which` holds the model of each tensor. Of the penalty `penalty_grads` is the loss's gradient by the
mean size of a model's masks, and `shares` the part of one score of a tensor in that mean.
"""

import triton
import triton.language as tl

from bermo.nn.fast.kernels import pointer_at, slope_of_size


@triton.jit
def sum_squares(
    weights,
    masks,
    grads,
    offsets,
    sums,
    scores,
    penalty_grads,
    shares,
    shift,
    which,
    tensors,
    starts,
    sizes,
    num_chunks,
    MASKED: tl.constexpr,
    SCORED: tl.constexpr,
    PENALISED: tl.constexpr,
    EVEN: tl.constexpr,
    LENGTH: tl.constexpr,
    SPAN: tl.constexpr,
):
    """Σ dW² and Σ dS² of a chunk, before clipping."""
    chunk = tl.program_id(0)
    tensor = tl.load(tensors + chunk)
    start, size = tl.load(starts + chunk), tl.load(sizes + tensor)
    offset = tl.multiple_of(tl.load(offsets + tensor), 16)
    if EVEN:
        start, size = tl.multiple_of(start, 16), tl.multiple_of(size, 16)
    weight_at = pointer_at(weights, tensor, tl.float32, EVEN)
    mask_at = pointer_at(masks, tensor, tl.int8, EVEN)
    if PENALISED:
        score_at = pointer_at(scores, tensor, tl.float32, EVEN)
        pull = tl.load(penalty_grads + tl.load(which + tensor)) * tl.load(shares + tensor)
    of_weights = tl.zeros([SPAN], tl.float32)
    of_scores = tl.zeros([SPAN], tl.float32)
    for i in range(LENGTH // SPAN):
        at = start + i * SPAN + tl.arange(0, SPAN)
        exists = at < size
        grad = tl.load(grads + offset + at, mask=exists, other=0.0).to(tl.float32)
        kept = grad
        if MASKED:
            kept = grad * tl.load(mask_at + at, mask=exists, other=0).to(tl.float32)
        of_weights += kept * kept
        if SCORED:
            moved = grad * tl.load(weight_at + at, mask=exists, other=0.0)
            if PENALISED:
                score = tl.load(score_at + at, mask=exists, other=0.0)
                moved += tl.where(exists, pull * slope_of_size(score + shift), 0.0)
            of_scores += moved * moved
    tl.store(sums + chunk, tl.sum(of_weights))
    if SCORED:
        tl.store(sums + num_chunks + chunk, tl.sum(of_scores))


@triton.jit
def root_sums(sums, norms, first, sizes, num_chunks, LENGTH: tl.constexpr, WIDTH: tl.constexpr):
    """The norm of a tensor's gradient: the root of the sum over its chunks."""
    tensor, kind = tl.program_id(0), tl.program_id(1)
    num = (tl.load(sizes + tensor) + LENGTH - 1) // LENGTH
    chunk = tl.arange(0, WIDTH)
    source = sums + kind * num_chunks + tl.load(first + tensor) + chunk
    total = tl.sum(tl.load(source, mask=chunk < num, other=0.0))
    tl.store(norms + kind * tl.num_programs(0) + tensor, tl.sqrt(total))


@triton.jit
def settings_of(numbers, rates, steps, entry):
    """Decay, β₁, β₂, ε, rate and the corrections of a tensor; powers in float64, as torch computes them."""
    at = numbers + entry * 4
    beta1, beta2 = tl.load(at), tl.load(at + 1)
    eps, decay = tl.load(at + 2).to(tl.float32), tl.load(at + 3)
    rate = tl.load(tl.load(rates + entry).to(tl.pointer_type(tl.float32))).to(tl.float64)
    step = tl.load(tl.load(steps + entry).to(tl.pointer_type(tl.float32))).to(tl.float64)
    size = rate / (1.0 - tl.exp(step * tl.log(beta1)))
    root = tl.sqrt(1.0 - tl.exp(step * tl.log(beta2)))
    return (
        (rate * decay).to(tl.float32),
        beta1.to(tl.float32),
        (1.0 - beta1).to(tl.float32),
        beta2.to(tl.float32),
        (1.0 - beta2).to(tl.float32),
        eps,
        size.to(tl.float32),
        root.to(tl.float32),
    )


@triton.jit
def update_at(at, exists, value, grad, to, first_at, second_at, decay, b1, a1, b2, a2, eps, size, root):
    """One AdamW update of a span of a tensor; return its new values."""
    first = tl.load(first_at + at, mask=exists, other=0.0) * b1 + grad * a1
    second = tl.load(second_at + at, mask=exists, other=0.0) * b2 + grad * grad * a2
    value -= decay * value
    value -= size * first / (tl.sqrt(second) / root + eps)
    tl.store(first_at + at, first, mask=exists)
    tl.store(second_at + at, second, mask=exists)
    tl.store(to + at, value, mask=exists)
    return value


@triton.jit
def adam_step(
    weights,
    masks,
    copies,
    grads,
    offsets,
    scores,
    firsts,
    seconds,
    numbers,
    rates,
    steps,
    scales,
    penalty_grads,
    shares,
    shift,
    which,
    tensors,
    starts,
    sizes,
    num_tensors,
    MASKED: tl.constexpr,
    SCORED: tl.constexpr,
    PENALISED: tl.constexpr,
    EVEN: tl.constexpr,
    LENGTH: tl.constexpr,
    SPAN: tl.constexpr,
):
    """Update the weights of a chunk and, with SCORED, their scores; without masks write the copies too."""
    chunk = tl.program_id(0)
    tensor = tl.load(tensors + chunk)
    start, size = tl.load(starts + chunk), tl.load(sizes + tensor)
    offset = tl.multiple_of(tl.load(offsets + tensor), 16)
    if EVEN:
        start, size = tl.multiple_of(start, 16), tl.multiple_of(size, 16)
    mask_at = pointer_at(masks, tensor, tl.int8, EVEN)
    copy_at = pointer_at(copies, tensor, grads.dtype.element_ty, EVEN)
    scale = tl.load(scales + tl.load(which + tensor))
    weight_at = pointer_at(weights, tensor, tl.float32, EVEN)
    first_at = pointer_at(firsts, tensor, tl.float32, EVEN)
    second_at = pointer_at(seconds, tensor, tl.float32, EVEN)
    decay, b1, a1, b2, a2, eps, pace, root = settings_of(numbers, rates, steps, tensor)
    if SCORED:
        score_at = pointer_at(scores, tensor, tl.float32, EVEN)
        if PENALISED:
            pull = tl.load(penalty_grads + tl.load(which + tensor)) * tl.load(shares + tensor) * scale
        s_first_at = pointer_at(firsts, num_tensors + tensor, tl.float32, EVEN)
        s_second_at = pointer_at(seconds, num_tensors + tensor, tl.float32, EVEN)
        s_decay, s_b1, s_a1, s_b2, s_a2, s_eps, s_pace, s_root = settings_of(
            numbers, rates, steps, num_tensors + tensor
        )
    for i in range(LENGTH // SPAN):
        at = start + i * SPAN + tl.arange(0, SPAN)
        exists = at < size
        grad = tl.load(grads + offset + at, mask=exists, other=0.0).to(tl.float32) * scale
        kept = grad
        if MASKED:
            kept = grad * tl.load(mask_at + at, mask=exists, other=0).to(tl.float32)
        weight = tl.load(weight_at + at, mask=exists, other=0.0)
        if SCORED:
            score = tl.load(score_at + at, mask=exists, other=0.0)
            moved = grad * weight
            if PENALISED:
                moved += pull * slope_of_size(score + shift)
            update_at(
                at,
                exists,
                score,
                moved,
                score_at,
                s_first_at,
                s_second_at,
                s_decay,
                s_b1,
                s_a1,
                s_b2,
                s_a2,
                s_eps,
                s_pace,
                s_root,
            )
        weight = update_at(
            at,
            exists,
            weight,
            kept,
            weight_at,
            first_at,
            second_at,
            decay,
            b1,
            a1,
            b2,
            a2,
            eps,
            pace,
            root,
        )
        if not MASKED:
            tl.store(copy_at + at, weight.to(copy_at.dtype.element_ty), mask=exists)
