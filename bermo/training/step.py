"""One step of training on its device: masks, forward, backward, clip, update, every operation launched in turn.

What changes from step to step lies on the device (rates, kept numbers, thresholds) or is a seed of its random numbers, so the same
operations can be captured and replayed (`graphs.py`), and a run can be taken up again at any step.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from bermo.nn.fast.host import Hosting, can_host
from bermo.nn.fast.shadow import Shadow
from bermo.training.fuse import NOTHING, Fused, barely_dropping, make_fusion
from bermo.training.job import Batch, Job, compute_loss
from bermo.training.optimiser import Direct, make_direct, start_optimizer_

# cuDNN's attention is left out: it builds a kernel for each new shape, 1.5 s on an H200, and short texts gain nothing by it.
ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]

LEAST_PART = 1e-2  # of all gradients, that a gap is relative to: the key bias gets none but rounding, a scalar's may cancel
Part = tuple[Batch, float, bool]
"""A batch, its share of the step's labelled things, and whether it has any."""


class Step:
    """Runs one optimiser step, and sums losses and gradient norms until they are asked for."""

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
        inner = accelerator.unwrap_model(model)
        named = [(name, p) for name, p in inner.named_parameters() if p.requires_grad]
        self.names, self.parameters = [name for name, _ in named], [p for _, p in named]
        device = accelerator.device
        self.num_models = max(1, len(job.members))
        self.loss_sum = torch.zeros(self.num_models, dtype=torch.float64, device=device)
        self.norm_sum = torch.zeros(self.num_models, dtype=torch.float64, device=device)
        self.norms = torch.zeros(len(named), self.num_models, device=device)
        self.places: dict[tuple[int, ...], Tensor] = {}
        self.ones = torch.ones(self.num_models, device=device)
        is_half = accelerator.mixed_precision == "bf16"
        self.fusion = make_fusion(inner, shadow, fused, device, is_half)
        self.is_fused = False
        self.is_hosted = fused != NOTHING and can_host(inner, device)
        self.direct: list[Direct] = []

    def __call__(self, parts: Sequence[Part], prepare: Callable[[], None]) -> None:
        prepare()
        moved = [(to_device(batch, self.accelerator.device), share, has) for batch, share, has in parts]
        self.run(moved, is_update=True)

    def run(self, parts: Sequence[Part], is_update: bool) -> None:
        """Do the step on batches that lie on the device; without the update nothing is changed."""
        for hook in self.job.hooks:
            hook.apply()
        if self.shadow is not None:
            self.shadow.refresh()
        loss = self._backward(parts)
        ready = [one for one in self.direct if one.is_ready()]
        if self.shadow is not None:
            self.shadow.collect([copy for one in ready for copy in one.copies])
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
        """The gradient norm of each parameter of a model in the last step, before clipping."""
        return dict(zip(self.names, self.norms[:, model].tolist(), strict=True))

    def _backward(self, parts: Sequence[Part]) -> Tensor:
        accelerator, model = self.accelerator, self.model
        total = torch.zeros(self.num_models, dtype=torch.float64, device=accelerator.device)
        for index, (batch, share, has_labels) in enumerate(parts):
            is_last = index == len(parts) - 1
            with nullcontext() if is_last else accelerator.no_sync(model):
                with accelerator.autocast(), sdpa_kernel(ATTENTION), self._holding():
                    loss = compute_loss(self._call_model, self.job.objective, batch)
                if not has_labels:  # a mean over nothing is not a number
                    loss = loss.nan_to_num(0.0)
                total += loss.detach() * share
                if loss.ndim:  # one for each model that is trained here, and none feels another's
                    loss = loss.sum()
                # Gradients are averaged over processes, so each one's share is scaled up by their number.
                factor = share * accelerator.num_processes
                accelerator.backward(loss if factor == 1.0 else loss * factor)
        return total

    def _call_model(self, **arguments: Any) -> Any:
        """Run the model, with the copies in place of its weights where there are some."""
        copies = None if self.shadow is None else self.shadow.plain
        return call_with_copies(self.model, copies, arguments)

    def _holding(self) -> AbstractContextManager[None]:
        """The model's fused forwards in place, where there are some and they were found right; on some processors better functions."""
        if self.fusion is not None and self.is_fused:
            return self.fusion.holding(self.loss_sum.device)
        return Hosting() if self.is_hosted else nullcontext()

    def gap(self, parts: Sequence[Part]) -> float:
        """How far the gradients of the fused pass are from the plain one's on these batches, relative, next to nothing dropped.

        The largest gap of any kind of parameter, over all layers: what all biases get is little beside the matrices' part.

        Kernels are compiled for the card at hand. One that is wrong there, for one shape of batch, must not train anything.
        """
        for hook in self.job.hooks:
            hook.apply()
        found = []
        try:
            with barely_dropping(self.accelerator.unwrap_model(self.model)):
                for is_fused in (False, True):
                    self.is_fused = is_fused
                    found.append(self._gradients(parts))
        finally:  # what cannot run here must not stay switched on
            self.is_fused = False
            self.optimizer.zero_grad(set_to_none=True)
        both = [
            (n, a, b) for n, a, b in zip(self.names, *found, strict=True) if a is not None and b is not None
        ]
        if len(both) < max(sum(grad is not None for grad in grads) for grads in found):
            return math.inf
        kinds = [re.sub(r"\d+", "", name) for name, _, _ in both]  # of any layer
        return _largest_gap(kinds, [a for _, a, _ in both], [b for _, _, b in both])

    def _gradients(self, parts: Sequence[Part]) -> list[Tensor | None]:
        """The gradient of each parameter on these batches."""
        if self.shadow is not None:
            self.shadow.refresh()
        self._backward(parts)
        if self.shadow is not None:
            self.shadow.collect()
        grads = [p.grad for p in self.parameters]
        self.optimizer.zero_grad(set_to_none=True)
        return grads

    def start_(self) -> None:
        """Make the optimiser's state, and what updates weights from the copies' gradients; tensors stay from now on."""
        start_optimizer_(self.optimizer.optimizer, self.parameters)
        if self.shadow is not None and self.fusion is not None and self.fusion.fused.adam:
            inner = self.optimizer.optimizer
            self.direct = make_direct(inner, self.shadow, self.parameters, self.num_models)

    def _norm(self, ready: Sequence[Direct]) -> Tensor:
        """The norm of all gradients of each model together; those of each parameter are kept."""
        if self.accelerator.scaler is not None:
            self.accelerator.unscale_gradients(self.optimizer)
        found = tuple(i for i, parameter in enumerate(self.parameters) if parameter.grad is not None)
        parts = [*self._norms_of(self._grads()), *(one.adam.norms() for one in ready)]
        norms = torch.cat(parts)
        found = (*found, *(place for one in ready for place in one.places))
        if found not in self.places:  # made once: a list cannot be moved to the device inside a capture
            self.places[found] = torch.tensor(found, device=self.norms.device)
        self.norms.zero_().index_copy_(0, self.places[found], norms)
        return torch.linalg.vector_norm(norms, dim=0)

    def _norms_of(self, grads: list[Tensor]) -> list[Tensor]:
        """The norms of gradients that are written out, a row each, a column a model."""
        if not grads:
            return []
        if self.num_models > 1:
            grads = [grad[model] for grad in grads for model in range(self.num_models)]
        norms = torch.stack([norm.float() for norm in torch._foreach_norm(grads)])
        return [norms.view(-1, self.num_models)]

    def _grads(self) -> list[Tensor]:
        return [p.grad for p in self.parameters if p.grad is not None]

    def _update(self, norm: Tensor, ready: Sequence[Direct]) -> None:
        shrinking = torch.clamp(self.clip / (norm + 1e-6), max=1.0) if self.clip > 0 else None
        for one in ready:
            one.adam.step(self.ones if shrinking is None else shrinking)
        self._update_others(shrinking)
        for one in self.direct:
            if one not in ready and not one.is_masked:
                cast(Shadow, self.shadow).renew(one.copies)

    def _update_others(self, shrinking: Tensor | None) -> None:
        """torch's update, of all that has its gradient written out."""
        inner = self.optimizer.optimizer
        if self.num_models > 1:
            for model, factor in enumerate(() if shrinking is None else shrinking):
                torch._foreach_mul_([grad[model] for grad in self._grads()], factor)
        elif self.accelerator.scaler is None and inner.defaults["fused"]:
            # The fused update divides by this scale as it reads the gradients: clipping costs no pass of its own.
            inner.grad_scale = None if shrinking is None else 1 / shrinking[0]
            inner.step()
            return
        elif shrinking is not None:
            torch._foreach_mul_(self._grads(), shrinking[0])
        self.optimizer.step()


def call_with_copies(
    model: nn.Module, copies: Mapping[str, Tensor] | None, arguments: Mapping[str, Any]
) -> Any:
    """Run a model that reads these copies in place of its parameters of the same names."""
    if not copies:
        return model(**arguments)
    return torch.func.functional_call(model, dict(copies), (), dict(arguments))


def linear_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The trained weights and biases that only linear layers read, by name; masked weights are not among them."""
    linear: dict[str, nn.Parameter] = {}
    others: set[int] = set()
    for prefix, module in model.named_modules():
        for name, parameter in module.named_parameters(prefix, recurse=False):
            if isinstance(module, nn.Linear) and ".parametrizations." not in name:
                linear[name] = parameter
            else:
                others.add(id(parameter))
    return {k: p for k, p in linear.items() if p.requires_grad and id(p) not in others}


def to_device(batch: Batch, device: torch.device) -> Batch:
    return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}


def _largest_gap(kinds: Sequence[str], first: list[Tensor], second: list[Tensor]) -> float:
    """The largest |b − a| / |a| of the tensors of a kind, where a small |a| counts as a hundredth of that of all kinds."""
    order = sorted(set(kinds))
    index = torch.tensor([order.index(kind) for kind in kinds], device=first[0].device)

    def squares(tensors: list[Tensor]) -> Tensor:
        norms = torch.stack([norm.float() for norm in torch._foreach_norm(tensors)])
        return norms.new_zeros(len(order)).index_add_(0, index, norms.square())

    sizes, apart = squares(first), squares(list(torch._foreach_sub(second, first)))
    sizes = torch.maximum(sizes, LEAST_PART**2 * sizes.sum()).clamp(min=1e-30)
    return (apart / sizes).sqrt().max().item()
