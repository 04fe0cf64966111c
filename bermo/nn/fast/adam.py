"""AdamW over weights, masked or not, and their scores, straight from the gradient G of the copies; for graphics cards.

    dW = c M ⊙ G      dS = c (G ⊙ W + p σ'(S))              p: a penalty's pull (`nn.penalty`), where there is one; c: the clip's factor, on the device, one for each set of tensors
    dW = c G          W̃ ← W                                 without a mask; the copy W̃ is then written anew in the same pass
    m ← β₁ m + (1 − β₁) d      v ← β₂ v + (1 − β₂) d²        for both
    w ← w − η λ w − η m̂ / (√v̂ + ε)                          (Loshchilov & Hutter 2019)

One pass reads and writes each tensor once; one before it gives the norms. Neither gradient is ever written down. The moments and step
numbers are those of a torch.optim.AdamW, which is also the twin: `state` and checkpoints stay as they are.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.optim import Optimizer

from bermo.nn.fast.kernels import CHUNK, Chunks, addresses, pointer_at, slope_of_size
from bermo.nn.fast.penalty import Sizes

SPAN = 1024  # elements at a time: what the registers of 4 warps can hold of ten tensors


@triton.jit
def _squares(
    weights,
    masks,
    grads,
    offsets,
    sums,
    scores,
    pulls,
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
    """Σ (M G)² and Σ (G W)² of a chunk."""
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
        pull = tl.load(pulls + tl.load(which + tensor)) * tl.load(shares + tensor)
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
def _norms(sums, norms, first, sizes, num_chunks, LENGTH: tl.constexpr, WIDTH: tl.constexpr):
    """√ of the sums over a tensor's chunks."""
    tensor, kind = tl.program_id(0), tl.program_id(1)
    num = (tl.load(sizes + tensor) + LENGTH - 1) // LENGTH
    chunk = tl.arange(0, WIDTH)
    place = sums + kind * num_chunks + tl.load(first + tensor) + chunk
    total = tl.sum(tl.load(place, mask=chunk < num, other=0.0))
    tl.store(norms + kind * tl.num_programs(0) + tensor, tl.sqrt(total))


@triton.jit
def _settings(numbers, rates, steps, entry):
    """Rate, decay, β₁, β₂, ε and the two corrections of a tensor; powers in float64, as torch takes them."""
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
def _update(at, exists, value, grad, to, first_at, second_at, decay, b1, a1, b2, a2, eps, size, root):
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
def _step(
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
    pulls,
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
    decay, b1, a1, b2, a2, eps, pace, root = _settings(numbers, rates, steps, tensor)
    if SCORED:
        score_at = pointer_at(scores, tensor, tl.float32, EVEN)
        if PENALISED:
            pull = tl.load(pulls + tl.load(which + tensor)) * tl.load(shares + tensor) * scale
        s_first_at = pointer_at(firsts, num_tensors + tensor, tl.float32, EVEN)
        s_second_at = pointer_at(seconds, num_tensors + tensor, tl.float32, EVEN)
        s_decay, s_b1, s_a1, s_b2, s_a2, s_eps, s_pace, s_root = _settings(
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
            _update(
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
        weight = _update(
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


class DirectAdam:
    """Updates weights and their scores in place, from one flat buffer of gradients; all tensors must stay where they are."""

    def __init__(
        self,
        weights: Sequence[nn.Parameter],
        grads: Tensor,
        optimizer: Optimizer,
        num_models: int = 1,
        *,
        copies: Sequence[Tensor] = (),
        masks: Sequence[Tensor] = (),
        scores: Sequence[nn.Parameter] = (),
        sizes: Sizes | None = None,
    ) -> None:
        """Give `masks`, and beside them `scores` and with `sizes` a penalty's pull at these, or else the `copies` that an update makes anew.

        Of several models, along the first axis, each has a clip factor of its own.
        """
        assert bool(masks) != bool(copies)
        device = weights[0].device
        self.parameters = [*weights, *scores]
        self.num_models, self.sizes = num_models, sizes

        def cut(tensors: Sequence[Tensor]) -> list[Tensor]:
            """Each model's own part of each tensor."""
            if num_models == 1:
                return [tensor.detach() for tensor in tensors]
            return [part for tensor in tensors for part in tensor.detach().unbind()]

        parts = cut(weights)
        self.chunks = Chunks([part.numel() for part in parts], device, length=CHUNK)
        self.grads, self.num = grads, len(parts)
        self.kinds = 2 if scores else 1
        self.weights, self.is_masked = addresses(parts), bool(masks)
        self.masks = addresses(cut(masks)) if masks else self.weights  # not read
        self.copies = addresses(cut(copies)) if copies else self.weights  # not written
        self.scores = addresses(cut(scores)) if scores else self.weights
        states = [optimizer.state[parameter] for parameter in self.parameters]
        self.firsts = addresses(cut([state["exp_avg"] for state in states]))
        self.seconds = addresses(cut([state["exp_avg_sq"] for state in states]))
        self.steps = [state["step"] for state in states]
        self.step_places = addresses(self.steps).repeat_interleave(num_models)
        tables = (self.weights, self.masks, self.copies, self.scores, self.firsts, self.seconds)
        self.chunks.look_at(*tables)
        self._read_groups(optimizer)
        self.which = torch.arange(self.num, dtype=torch.int32, device=device) % num_models
        self.sums = torch.zeros(self.kinds, self.chunks.count, device=device)
        self.width = triton.next_power_of_2(max(triton.cdiv(part.numel(), CHUNK) for part in parts))

    def norms(self) -> Tensor:
        """The norms of the gradients before clipping: of all weights, then of all scores; a column a model."""
        chunks = self.chunks
        _squares[(chunks.count,)](
            self.weights,
            self.masks,
            self.grads,
            chunks.offsets,
            self.sums,
            self.scores,
            *self._pull(),
            self.which,
            *chunks.layout,
            chunks.count,
            **self._options(),
        )
        found = torch.empty(self.kinds, self.num, device=self.sums.device)
        _norms[(self.num, self.kinds)](
            self.sums,
            found,
            chunks.first,
            chunks.layout[2],
            chunks.count,
            LENGTH=CHUNK,
            WIDTH=self.width,
        )
        return found.view(-1, self.num_models)

    def step(self, scales: Tensor, is_real: bool = True) -> None:
        """Update all of them, gradients times their factor; not `is_real`, only build the kernel."""
        chunks = self.chunks
        if is_real:
            torch._foreach_add_(self.steps, 1)
        # No program is launched on an empty grid, but what a capture could not load is loaded.
        _step[(chunks.count if is_real else 0,)](
            self.weights,
            self.masks,
            self.copies,
            self.grads,
            chunks.offsets,
            self.scores,
            self.firsts,
            self.seconds,
            self.numbers,
            self.rate_places,
            self.step_places,
            scales,
            *self._pull(),
            self.which,
            *chunks.layout,
            self.num,
            **self._options(),
        )

    def _read_groups(self, optimizer: Optimizer) -> None:
        group_of = {id(p): group for group in optimizer.param_groups for p in group["params"]}
        groups = [group_of[id(parameter)] for parameter in self.parameters]
        rows = [(*group["betas"], group["eps"], group["weight_decay"]) for group in groups]
        device = self.grads.device
        numbers = torch.tensor(rows, dtype=torch.float64, device=device)
        self.numbers = numbers.repeat_interleave(self.num_models, 0)
        self.rates = [group["lr"] for group in groups]
        self.rate_places = addresses(self.rates).repeat_interleave(self.num_models)

    def _pull(self) -> tuple[Tensor, Tensor, float]:
        if self.sizes is None:
            return self.sums, self.sums, 0.0  # not read
        return self.sizes.pull, self.sizes.shares, self.sizes.shift

    def _options(self) -> dict[str, Any]:
        return {
            "MASKED": self.is_masked,
            "SCORED": self.kinds == 2,
            "PENALISED": self.sizes is not None and self.sizes.is_used,
            "EVEN": self.chunks.is_even,
            "LENGTH": CHUNK,
            "SPAN": SPAN,
            "num_warps": 4,
        }


def can_update(optimizer: Optimizer, parameters: Sequence[nn.Parameter], num_models: int = 1) -> bool:
    """Tell whether an optimiser is an AdamW whose rates and step numbers lie beside these float32 parameters."""
    if type(optimizer) is not torch.optim.AdamW:
        return False
    if num_models > 1 and any(p[0].numel() % 16 for p in parameters):
        return False  # the parts of one tensor would not follow each other in the buffer of gradients
    ids = {id(parameter) for parameter in parameters}
    groups = [g for g in optimizer.param_groups if any(id(p) in ids for p in g["params"])]
    are_plain = all(
        isinstance(group["lr"], Tensor)
        and group["lr"].dtype == torch.float32
        and not group["amsgrad"]
        and not group["maximize"]
        for group in groups
    )
    return are_plain and all(
        parameter.dtype == torch.float32
        and parameter.is_contiguous()
        and optimizer.state[parameter]["step"].dtype == torch.float32
        and optimizer.state[parameter]["step"].device == parameter.device
        for parameter in parameters
    )
