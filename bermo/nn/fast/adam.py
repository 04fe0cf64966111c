"""AdamW over weights, masked or not, and their scores, directly from the gradient G of the copies; for GPUs.

    dW = c M ⊙ G      dS = c (G ⊙ W + g σ'(S))        c: the clip's factor, one for each model, on the device
    dW = c G          W̃ ← W                           without a mask; the same pass writes the copy W̃
    m ← β₁ m + (1 − β₁) d      v ← β₂ v + (1 − β₂) d²        for both
    w ← w − η λ w − η m̂ / (√v̂ + ε)                          (Loshchilov & Hutter 2019)

g is a penalty's gradient (`nn.fast.penalty`), if there is one. One pass computes the norms, a second one
reads and writes each tensor once; neither dW nor dS is ever stored. The moments and step numbers are those
of a torch.optim.AdamW, which is also the twin: its `state` and checkpoints stay as they are.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor, nn
from torch.optim import Optimizer

from bermo.nn.adam_state import SECOND
from bermo.nn.fast.adam_kernels import adam_step, root_sums, sum_squares
from bermo.nn.fast.kernels import CHUNK, Chunks, addresses
from bermo.nn.fast.penalty import PenaltySize

# Elements at a time: what the registers of 4 warps can hold of ten tensors.
SPAN = 1024


class Moments:
    """Where an AdamW keeps the moments and numbers of parameters, as tables; nothing may be moved.

    Of several models, along the first axis, each has entries of its own.
    """

    def __init__(self, optimizer: Optimizer, parameters: Sequence[nn.Parameter], num_models: int = 1) -> None:
        states = [optimizer.state[parameter] for parameter in parameters]
        self.addresses = tuple(
            addresses(split([state[name] for state in states], num_models)) for name in ("exp_avg", SECOND)
        )
        self.steps = [state["step"] for state in states]
        group_of = {id(p): group for group in optimizer.param_groups for p in group["params"]}
        groups = [group_of[id(parameter)] for parameter in parameters]
        rows = [(*group["betas"], group["eps"], group["weight_decay"]) for group in groups]
        self.rates = [group["lr"] for group in groups]
        numbers = torch.tensor(rows, dtype=torch.float64, device=parameters[0].device)
        self.settings = (
            numbers.repeat_interleave(num_models, 0),
            addresses(self.rates).repeat_interleave(num_models),
            addresses(self.steps).repeat_interleave(num_models),
        )

    def count_(self) -> None:
        """Count one more step of each parameter."""
        torch._foreach_add_(self.steps, 1)


def split(tensors: Sequence[Tensor], num_models: int) -> list[Tensor]:
    """Return each model's own part of each tensor."""
    if num_models == 1:
        return [tensor.detach() for tensor in tensors]
    return [part for tensor in tensors for part in tensor.detach().unbind()]


class DirectAdam:
    """Updates weights and their scores in place, from one buffer of gradients; no tensor may be moved."""

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
        penalty: PenaltySize | None = None,
    ) -> None:
        """Give `masks`, with them `scores` and their `penalty`, or else the `copies` that an update writes.

        Of several models, along the first axis, each has a clip factor of its own.
        """
        assert bool(masks) != bool(copies)
        device = weights[0].device
        self.parameters = [*weights, *scores]
        self.num_models, self.penalty = num_models, penalty

        parts = split(weights, num_models)
        self.chunks = Chunks([part.numel() for part in parts], device, length=CHUNK)
        self.grads, self.num = grads, len(parts)
        self.kinds = 2 if scores else 1
        self.weights, self.is_masked = addresses(parts), bool(masks)
        # What is not given is neither read nor written; any table will do as an argument.
        self.masks = addresses(split(masks, num_models)) if masks else self.weights
        self.copies = addresses(split(copies, num_models)) if copies else self.weights
        self.scores = addresses(split(scores, num_models)) if scores else self.weights
        self.moments = Moments(optimizer, self.parameters, num_models)
        tables = (self.weights, self.masks, self.copies, self.scores, *self.moments.addresses)
        self.chunks.check_alignment(*tables)
        self.which = torch.arange(self.num, dtype=torch.int32, device=device) % num_models
        self.sums = torch.zeros(self.kinds, self.chunks.count, device=device)
        self.width = triton.next_power_of_2(max(triton.cdiv(part.numel(), CHUNK) for part in parts))

    def norms(self) -> Tensor:
        """The norms of the gradients before clipping: weights, then scores; one column for each model."""
        chunks = self.chunks
        sum_squares[(chunks.count,)](
            self.weights,
            self.masks,
            self.grads,
            chunks.offsets,
            self.sums,
            self.scores,
            *self._penalty(),
            self.which,
            *chunks.layout,
            chunks.count,
            **self._options(),
        )
        norms = torch.empty(self.kinds, self.num, device=self.sums.device)
        root_sums[(self.num, self.kinds)](
            self.sums,
            norms,
            chunks.first,
            chunks.layout[2],
            chunks.count,
            LENGTH=CHUNK,
            WIDTH=self.width,
        )
        return norms.view(-1, self.num_models)

    def step(self, scales: Tensor, is_real: bool = True) -> None:
        """Update all parameters, with gradients times `scales`; without `is_real` only build the kernel."""
        chunks = self.chunks
        if is_real:
            self.moments.count_()
        # On an empty grid no program runs, but the kernel is loaded, which a capture could not do.
        adam_step[(chunks.count if is_real else 0,)](
            self.weights,
            self.masks,
            self.copies,
            self.grads,
            chunks.offsets,
            self.scores,
            *self.moments.addresses,
            *self.moments.settings,
            scales,
            *self._penalty(),
            self.which,
            *chunks.layout,
            self.num,
            **self._options(),
        )

    def _penalty(self) -> tuple[Tensor, Tensor, float]:
        if self.penalty is None:
            # Not read.
            return self.sums, self.sums, 0.0
        return self.penalty.grad, self.penalty.shares, self.penalty.shift

    def _options(self) -> dict[str, Any]:
        return {
            "MASKED": self.is_masked,
            "SCORED": self.kinds == 2,
            "PENALISED": self.penalty is not None and self.penalty.is_used,
            "EVEN": self.chunks.is_even,
            "LENGTH": CHUNK,
            "SPAN": SPAN,
            "num_warps": 4,
        }


def can_update(optimizer: Optimizer, parameters: Sequence[nn.Parameter], num_models: int = 1) -> bool:
    """Tell whether an optimiser is an AdamW whose numbers are on the device of these float32 parameters."""
    if type(optimizer) is not torch.optim.AdamW:
        return False
    if num_models > 1 and any(p[0].numel() % 16 for p in parameters):
        # The models' parts of one tensor would not be neighbours in the buffer of gradients.
        return False
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
