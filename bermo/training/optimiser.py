"""AdamW for a step: one fused kernel; on a GPU its rates and step numbers are tensors for captured steps.

A `Direct` group holds weights that our own AdamW updates: matrices from the gradients of their bfloat16
copies (bermo.nn.fast.adam), which are never written in float32, and tables of vectors from the gradients of
the rows that were read (bermo.nn.fast.row_adam).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from bermo.nn.fast.shadow import Shadow
from bermo.nn.masks import ScoreMask
from bermo.training.job import Job
from bermo.training.lamb import Lamb

if TYPE_CHECKING:
    from bermo.nn.fast.adam import DirectAdam
    from bermo.nn.fast.row_adam import RowAdam
    from bermo.nn.fast.rows import Tables


def make_optimizer(job: Job, device: torch.device) -> torch.optim.Optimizer:
    """Return a fused AdamW or LAMB; on a GPU rates and step numbers are tensors that captured steps read."""
    if device.type != "cuda":
        if job.optimizer == "lamb":
            return Lamb(job.groups)
        return torch.optim.AdamW(job.groups, eps=1e-8, fused=device.type == "cpu")
    groups = [group | {"lr": torch.tensor(group["lr"], device=device)} for group in job.groups]
    rate = torch.tensor(0.0, device=device)
    if job.optimizer == "lamb":
        return Lamb(groups, rate)
    return torch.optim.AdamW(groups, lr=rate, eps=1e-8, fused=True, capturable=True)


def set_rate_(group: dict[str, Any], rate: float) -> None:
    """Give a parameter group its rate, in place where the rate is a tensor on a GPU."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


@dataclass(frozen=True, kw_only=True, eq=False)
class Direct:
    """Weights that are updated from the gradients of their copies, or tables from those of rows."""

    adam: "DirectAdam | RowAdam"
    copies: list[Tensor]
    indices: tuple[int, ...]
    """Where its parameters stand in the step's list of parameters."""
    tables: "Tables | None" = None
    renewed: Sequence[Tensor] = ()
    """Copies that the update writes anew."""

    def is_ready(self) -> bool:
        """Tell whether every copy has a gradient in this step, and no parameter has one of its own; whether
        tables were read just once.

        A penalty may leave a gradient on the scores. A weight that nothing read has none, and torch does not
        update it.
        """
        if any(parameter.grad is not None for parameter in self.adam.parameters):
            return False
        if self.tables is not None:
            return len(self.tables.found) == 1
        return all(copy.grad is not None for copy in self.copies)


def make_direct(
    optimizer: torch.optim.Optimizer,
    shadow: Shadow,
    parameters: Sequence[nn.Parameter],
    num_models: int,
    tables: Sequence["Tables"] = (),
) -> list[Direct]:
    """Return the masked and the plain matrices of a step, and the tables, that our own AdamW can update.

    The optimiser's state must exist (`start_optimizer_`).
    """
    from bermo.nn.fast.adam import DirectAdam, can_update
    from bermo.nn.fast.row_adam import RowAdam

    index_of = {id(parameter): index for index, parameter in enumerate(parameters)}
    groups = []

    def add(adam: DirectAdam | RowAdam, copies: list[Tensor], **options: Any) -> None:
        indices = tuple(index_of[id(parameter)] for parameter in adam.parameters)
        groups.append(Direct(adam=adam, copies=copies, indices=indices, **options))

    weights = [weight for _, weight in shadow.masked]
    scores = [mask.scores for mask, _ in shadow.masked if isinstance(mask, ScoreMask)]
    if shadow.has_kernels and can_update(optimizer, [*weights, *scores], num_models):
        copies = shadow.masked_copies()
        penalty = shadow.track_penalty_() if scores else None
        masks = [mask.mask for mask, _ in shadow.masked]
        grads = shadow.keep_grads_(copies)
        options: dict[str, Any] = {"masks": masks, "scores": scores, "penalty": penalty}
        add(DirectAdam(weights, grads, optimizer, num_models, **options), copies)
    pairs = [pair for pair in shadow.pairs() if _is_even_matrix(pair[0], num_models)]
    weights, copies = [weight for weight, _ in pairs], [copy for _, copy in pairs]
    if pairs and can_update(optimizer, weights, num_models):
        grads = shadow.keep_grads_(copies)
        add(DirectAdam(weights, grads, optimizer, num_models, copies=copies), copies, renewed=copies)
        shadow.renew(copies)
    for one in tables:
        is_ours = not one.is_shared and all(weight.requires_grad for weight in one.weights)
        if is_ours and can_update(optimizer, one.weights):
            add(RowAdam(one, optimizer, num_models), [], tables=one)
            one.keeps_rows = True
            shadow.tables.append(one)
    return groups


def _is_even_matrix(weight: nn.Parameter, num_models: int) -> bool:
    """Tell whether a weight is a matrix, or a stack of one for each model, of a multiple of 16 elements.

    A matrix may have its heads as an axis of their own.
    """
    least_axes = 2 if num_models == 1 else 3
    is_even = weight.numel() // num_models % 16 == 0
    return weight.dim() >= least_axes and is_even and weight.is_contiguous()
