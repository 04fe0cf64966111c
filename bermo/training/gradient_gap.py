"""How far the gradients of two forward and backward passes are apart: the fused one and the plain one."""

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from bermo.nn.mix import LayerMix

# A probability at which the dropout kernels run but drop almost nothing, so that two passes can be compared.
TINY_DROPOUT = 1e-7
# The least norm that a gap is divided by, as a share of the norm of all gradients: that of a key's bias is
# nothing but rounding, and that of a scalar may cancel.
LEAST_SHARE = 1e-2
# Of the gradients of a kind of parameter; rounding in bfloat16 makes 1 to 6 % in most batches.
LARGEST_GAP = 0.2

Gradients = Sequence[Tensor | None]


@contextmanager
def nearly_no_dropout(model: nn.Module) -> Iterator[None]:
    """Give every dropout of a model a probability near 0 inside the block."""
    probabilities = [
        (module, name, value)
        for module in model.modules()
        for name in ("p", "dropout", "layer_dropout")
        if isinstance(module, nn.Dropout | LayerMix)
        and isinstance(value := getattr(module, name, None), float)
        and value > 0
    ]
    try:
        for module, name, _ in probabilities:
            setattr(module, name, TINY_DROPOUT)
        yield
    finally:
        for module, name, value in probabilities:
            setattr(module, name, value)


def gradient_gap(names: Sequence[str], plain: Gradients, other: Gradients) -> float:
    """Return the largest relative gap over kinds of parameters; infinite where one side lacks a gradient.

    A kind is a parameter's name without the layer's number: `layer.3.output.bias` -> `layer..output.bias`.
    """
    both = [
        (name, a, b)
        for name, a, b in zip(names, plain, other, strict=True)
        if a is not None and b is not None
    ]
    if len(both) < max(sum(grad is not None for grad in grads) for grads in (plain, other)):
        return math.inf
    kinds = [re.sub(r"\d+", "", name) for name, _, _ in both]
    return largest_gap(kinds, [a for _, a, _ in both], [b for _, _, b in both])


def largest_gap(kinds: Sequence[str], first: list[Tensor], second: list[Tensor]) -> float:
    """Return the largest |b − a| / |a| over kinds, where |a| counts as at least 1 % of that of all kinds."""
    order = sorted(set(kinds))
    index = torch.tensor([order.index(kind) for kind in kinds], device=first[0].device)

    def squares(tensors: list[Tensor]) -> Tensor:
        norms = torch.stack([norm.float() for norm in torch._foreach_norm(tensors)])
        return norms.new_zeros(len(order)).index_add_(0, index, norms.square())

    sizes, gaps = squares(first), squares(list(torch._foreach_sub(second, first)))
    sizes = torch.maximum(sizes, LEAST_SHARE**2 * sizes.sum()).clamp(min=1e-30)
    return (gaps / sizes).sqrt().max().item()
