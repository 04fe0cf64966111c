"""One training step on its device: masks, forward, backward, clip, update, every operation launched in turn.

All that changes from step to step lies in tensors on the device (rates, numbers of kept weights, thresholds)
or is a seed of random numbers. So the same operations can be captured and replayed (graphs.py), and a run can
be resumed at any step.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from operator import itemgetter
from typing import Any, NamedTuple, cast

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.nn.attention import sdpa_kernel
from transformers.pytorch_utils import Conv1D

from bermo.nn.adam_state import start_optimizer_
from bermo.nn.fast.cpu import CpuOverrides, is_faster
from bermo.nn.fast.cpu_half import HalfOverrides, is_faster_in_half
from bermo.nn.fast.overrides import ATTENTION, FunctionOverrides, NumbersOnDevice, is_checkpointing
from bermo.nn.fast.shadow import Shadow
from bermo.nn.masked import INSIDE
from bermo.nn.stacked import StackedConv1D
from bermo.training.bottleneck import in_order_of_products
from bermo.training.fuse import NOTHING, Fused, make_fusion
from bermo.training.gradient_gap import LARGEST_GAP, gradient_gap, nearly_no_dropout
from bermo.training.job import Batch, Job
from bermo.training.noise import OwnRows, RowNoise
from bermo.training.optimiser import Direct, make_direct
from bermo.training.shifted import bare_matrices

SHAKEN = 4
"""Passes with shaken copies that tell how far rounding moves the gradients of a batch."""


class WeightedBatch(NamedTuple):
    """A batch of a step, or one of its accumulation passes, and its weight in the step's loss."""

    batch: Batch
    share: float
    """The share of the step's labelled rows or tokens that are in this batch."""
    has_labels: bool
    rows: OwnRows | None = None
    """Which rows of a batch of several processes these are, where noise is drawn by row."""


class Comparison(NamedTuple):
    """How far a fused pass's gradients are from the plain one's, by the kind of parameter that is furthest
    off, since all biases together are small beside the matrices.
    """

    gap: float
    rounding: float
    """How far those of the plain pass move when its copies do by half a unit; 0 where nobody has to know."""


class Step:
    """Runs one optimiser step, and sums losses and gradient norms until they are read."""

    def __init__(
        self,
        job: Job,
        model: nn.Module,
        optimizer: Any,
        clip: float,
        accelerator: Accelerator,
        shadow: Shadow | None,
        fused: Fused = NOTHING,
    ) -> None:
        self.job, self.model, self.optimizer, self.clip = job, model, optimizer, clip
        self.accelerator, self.shadow = accelerator, shadow
        # Not by accelerate's unwrap_model, which imports torch's compiler.
        inner = job.model
        named = [(name, p) for name, p in inner.named_parameters() if p.requires_grad]
        self.names, self.parameters = [name for name, _ in named], [p for _, p in named]
        device = accelerator.device
        self.num_models = max(1, len(job.members))
        self.loss_sum = torch.zeros(self.num_models, dtype=torch.float64, device=device)
        self.norm_sum = torch.zeros(self.num_models, dtype=torch.float64, device=device)
        self.norms = torch.zeros(len(named), self.num_models, device=device)
        self.indices: dict[tuple[int, ...], Tensor] = {}
        self.ones = torch.ones(self.num_models, device=device)
        is_half = accelerator.mixed_precision == "bf16"
        self.fusion = make_fusion(inner, shadow, fused, device, is_half)
        self.is_fused = False
        self.computes_again = is_checkpointing(inner)
        self.cpu_overrides = _cpu_overrides(inner, device, is_half) if fused != NOTHING else None
        self.direct: list[Direct] = []

    def __call__(self, batches: Sequence[WeightedBatch], prepare: Callable[[], None]) -> None:
        """Set the step's numbers by `prepare`, move the batches to the device, and do the step."""
        prepare()
        device = self.accelerator.device
        self.run([one._replace(batch=to_device(one.batch, device)) for one in batches], is_update=True)

    def run(self, batches: Sequence[WeightedBatch], is_update: bool) -> None:
        """Do the step on batches that lie on the device; without the update no weight changes."""
        for hook in self.job.hooks:
            hook.apply()
        if self.shadow is not None:
            self.shadow.refresh()
        loss = self._backward(batches)
        ready = [one for one in self.direct if one.is_ready()]
        if self.shadow is not None:
            self.shadow.collect(
                [copy for one in ready for copy in one.copies],
                [one.tables for one in ready if one.tables is not None],
            )
            for one in ready:
                self.shadow.gather(one.copies)
        norm = self._norm(ready)
        if is_update:
            self._update(norm, ready)
            self.loss_sum += loss
            self.norm_sum += norm
        else:
            for one in ready:
                one.adam.step(self.ones, is_real=False)
        self.optimizer.zero_grad(set_to_none=True)

    def gradient_norms(self, model: int = 0) -> dict[str, float]:
        """Return the gradient norm of each parameter of a model in the last step, before clipping."""
        return dict(zip(self.names, self.norms[:, model].tolist(), strict=True))

    def _backward(self, batches: Sequence[WeightedBatch]) -> Tensor:
        """Run the forward and backward passes of a step; return the loss of each model."""
        accelerator, model = self.accelerator, self.model
        total = torch.zeros(self.num_models, dtype=torch.float64, device=accelerator.device)
        for index, (batch, share, has_labels, rows) in enumerate(batches):
            is_last = index == len(batches) - 1
            with nullcontext() if is_last else accelerator.no_sync(model):
                with accelerator.autocast(), self._capturable(), self._overrides(rows):
                    loss = self.job.loss_of(self._call_model, self.job.objective, batch)
                if not has_labels:
                    # A mean over no labels is not a number.
                    loss = loss.nan_to_num(0.0)
                total += loss.detach() * share
                if loss.ndim:
                    # One loss for each stacked model. They share no weight: the sum gives each its gradient.
                    loss = loss.sum()
                # Gradients are averaged over processes, so each one's share is scaled up by their number.
                factor = share * accelerator.num_processes
                # Layers that are computed again must find the kernels of the forward pass.
                with self._capturable() if self.computes_again else nullcontext():
                    accelerator.backward(loss if factor == 1.0 else loss * factor)
        return total

    def _call_model(self, **arguments: Any) -> Any:
        """Run the model, with the copies in place of its weights where there are some."""
        copies = None if self.shadow is None else self.shadow.plain
        return call_with_copies(self.model, copies, arguments)

    def _capturable(self) -> AbstractContextManager[Any]:
        """Let torch compute as a CUDA graph can hold it."""
        stack = ExitStack()
        stack.enter_context(sdpa_kernel(ATTENTION))
        if self.loss_sum.is_cuda:
            stack.enter_context(NumbersOnDevice(self.loss_sum.device))
        return stack

    def _overrides(self, rows: OwnRows | None) -> AbstractContextManager[None]:
        """Install the fused forwards where they passed the check, or faster functions on some CPUs; in
        several processes, noise by row.
        """
        if rows is not None:
            return RowNoise(rows, self.model).active()
        if self.fusion is not None and self.is_fused:
            return self.fusion.active(self.loss_sum.device)
        return nullcontext() if self.cpu_overrides is None else self.cpu_overrides()

    def compare(self, batches: Sequence[WeightedBatch]) -> Comparison:
        """Compare the fused pass's gradients with the plain one's, with hardly any dropout.

        Kernels are compiled for the GPU in use: one that is wrong there, for one shape of batch, must not
        train a model. But of some batches rounding alone moves the gradients as far: those of an MPNet's
        first layers by 60 %, or all where there is nothing to learn.
        """
        for hook in self.job.hooks:
            hook.apply()
        try:
            with nearly_no_dropout(self.job.model):
                plain = self._gradients(batches)
                self.is_fused = True
                gap = gradient_gap(self.names, plain, self._gradients(batches))
                self.is_fused = False
                seeds = range(0 if gap <= LARGEST_GAP or self.shadow is None else SHAKEN)
                moved = [gradient_gap(self.names, plain, self._gradients(batches, seed)) for seed in seeds]
                return Comparison(gap, max(moved, default=0.0))
        finally:
            # A kernel that failed must not stay switched on.
            self.is_fused = False
            self.optimizer.zero_grad(set_to_none=True)

    def _gradients(self, batches: Sequence[WeightedBatch], shaken: int | None = None) -> list[Tensor | None]:
        """Return the gradient of each parameter on these batches; with a seed, of copies that are shaken."""
        if self.shadow is not None:
            self.shadow.refresh()
        with nullcontext() if self.shadow is None or shaken is None else self.shadow.shaken(shaken):
            self._backward(batches)
        if self.shadow is not None:
            self.shadow.collect()
        grads = [p.grad for p in self.parameters]
        self.optimizer.zero_grad(set_to_none=True)
        return grads

    def start_(self) -> None:
        """Make the optimiser's state and the direct updates, whose tensors captured steps read."""
        start_optimizer_(self.optimizer.optimizer, self.parameters)
        if self.shadow is not None and self.fusion is not None and self.fusion.fused.adam:
            inner = self.optimizer.optimizer
            self.direct = make_direct(
                inner, self.shadow, self.parameters, self.num_models, self.fusion.tables
            )

    def _norm(self, ready: Sequence[Direct]) -> Tensor:
        """Return the norm of all gradients of each model, and keep the norm of each parameter's."""
        if self.accelerator.scaler is not None:
            self.accelerator.unscale_gradients(self.optimizer)
        norms = torch.cat([*self._norms_of(self._grads()), *(one.adam.norms() for one in ready)])
        with_grad = [i for i, parameter in enumerate(self.parameters) if parameter.grad is not None]
        rows = (*with_grad, *(index for one in ready for index in one.indices))
        if rows not in self.indices:
            # Made once: a list cannot be moved to the device inside a capture.
            self.indices[rows] = torch.tensor(rows, device=self.norms.device)
        self.norms.zero_().index_copy_(0, self.indices[rows], norms)
        return torch.linalg.vector_norm(norms, dim=0)

    def _norms_of(self, grads: list[Tensor]) -> list[Tensor]:
        """Return the norms of gradients in float32, one row for each gradient, one column for each model."""
        if not grads:
            return []
        if self.num_models > 1:
            grads = [grad[model] for grad in grads for model in range(self.num_models)]
        norms = torch.stack([norm.float() for norm in torch._foreach_norm(grads)])
        return [norms.view(-1, self.num_models)]

    def _grads(self) -> list[Tensor]:
        return [p.grad for p in self.parameters if p.grad is not None]

    def _update(self, norm: Tensor, ready: Sequence[Direct]) -> None:
        """Clip the gradients and update all weights."""
        factors = torch.clamp(self.clip / (norm + 1e-6), max=1.0) if self.clip > 0 else None
        for one in ready:
            one.adam.step(self.ones if factors is None else factors)
        self._update_others(factors)
        for one in self.direct:
            if one not in ready and one.renewed:
                cast(Shadow, self.shadow).renew(one.renewed)

    def _update_others(self, factors: Tensor | None) -> None:
        """Let torch update all weights with a gradient in float32, clipped by a factor for each model."""
        inner = self.optimizer.optimizer
        if self.num_models > 1:
            for model, factor in enumerate(() if factors is None else factors):
                torch._foreach_mul_([grad[model] for grad in self._grads()], factor)
        elif self.accelerator.scaler is None and inner.defaults["fused"]:
            # The fused update divides by this scale as it reads the gradients: clipping needs no pass.
            inner.grad_scale = None if factors is None else 1 / factors[0]
            inner.step()
            return
        elif factors is not None:
            torch._foreach_mul_(self._grads(), factors[0])
        self.optimizer.step()


def _cpu_overrides(model: nn.Module, device: torch.device, is_half: bool) -> type[FunctionOverrides] | None:
    """The functions that are faster than torch's own on this CPU, if there are any."""
    if is_half:
        return HalfOverrides if is_faster_in_half(model, device) else None
    return CpuOverrides if is_faster(model, device) else None


def call_with_copies(
    model: nn.Module, copies: Mapping[str, Tensor] | None, arguments: Mapping[str, Any]
) -> Any:
    """Run a model that reads these copies in place of its parameters of the same names."""
    if not copies:
        return model(**arguments)
    return torch.func.functional_call(model, dict(copies), (), dict(arguments))


def linear_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the trained weights and biases that only products read, by name, without masked weights."""
    linear: dict[str, nn.Parameter] = {}
    others: set[int] = set()
    for prefix, module in model.named_modules():
        for name, parameter in module.named_parameters(prefix, recurse=False):
            is_read_by_products = isinstance(module, nn.Linear | Conv1D | StackedConv1D) or (
                name.rpartition(".")[2] in bare_matrices(module)
            )
            if is_read_by_products and INSIDE not in name:
                linear[name] = parameter
            else:
                others.add(id(parameter))
    trained = [(k, p) for k, p in linear.items() if p.requires_grad and id(p) not in others]
    return dict(in_order_of_products(model, trained, itemgetter(1)))


def to_device(batch: Batch, device: torch.device) -> Batch:
    """Move a batch to a device, without waiting for it where its memory is pinned."""
    return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
