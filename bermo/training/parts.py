"""What the fused forwards of single kinds of modules take from the fusion that they are a part of, and
what they are in it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional


class Override(NamedTuple):
    """A function that stands in a module's attribute (`forward`, mostly) while a fusion is active."""

    module: nn.Module
    attribute: str
    function: Callable[..., Any]
    is_hookable: bool = False
    """It computes what it stands for also where hooks observe the module."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a fusion does for those who compute for it."""

    dtype: torch.dtype
    cast: Callable[[Tensor], Tensor]
    """A tensor in the working dtype, once for all its readers."""
    keep: Callable[[Tensor, Callable[[], Any]], Any]
    """What was made of a tensor, once in a pass."""
    project: Callable[[Tensor, Sequence[nn.Linear]], Sequence[Tensor]]
    """Query, key and value of one tensor, as one product where the copies are neighbours."""
    reads_copies: Callable[[nn.Linear], bool]
    """Whether a layer reads copies that take gradients; for such a one:"""
    linear: Callable[[nn.Linear, Tensor], Tensor]
    """Its output, without a gradient for its bias."""
    add_and_norm: Callable[[nn.Module, nn.Linear, Tensor, Tensor, int], Tensor]
    """LayerNorm(x + dropout(dense(h))), by the norm and dropout of a module and the number of its seed."""
    end: Callable[[nn.Module, Tensor, Tensor, int], Tensor]
    """LayerNorm(x + dropout(h)), in the same way."""
    grad_buffer: Callable[[Sequence[Tensor]], Tensor | None]
    """Where the optimiser reads the gradients of these copies, unless it was given in this step."""
    next_seed: Callable[[], int]
    """The number of one more seed."""
    seed: Callable[[int], Tensor]
    """A seed by its number, another one in each pass."""
    late: Callable[[], Any]
    """What adds up the gradients of vectors at the end of the backward pass (bermo.nn.fast.late)."""


def attend(module: Any, heads: Sequence[Tensor], bias: Tensor, scale: float) -> Tensor:
    """softmax(scale · q kᵀ + bias) v of (B, T, H, D), with the dropout of a module, by torch's own kernel."""
    q, k, v = (part.transpose(1, 2) for part in heads)
    p = module.dropout.p if module.dropout.training else 0.0
    seen = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=p, scale=scale)
    return seen.transpose(1, 2)


def relate(
    module: Any,
    parts: Parts,
    number: int,
    joined: Tensor,
    first: Tensor,
    second: Tensor | None,
    sees: Tensor,
    **options: Any,
) -> Tensor:
    """Attention to contents and to distances by one kernel, with the dropout of a module and its seed."""
    from bermo.nn.fast.relative import relative

    p = module.dropout.p if module.dropout.training else 0.0
    seed = parts.seed(number) if p > 0 else None
    return relative(joined, first, second, sees, seed=seed, p=p, **options)


def visible_in_tiles(sees: Tensor, apart: Tensor | None = None) -> Tensor:
    """Which tokens may see which, (B or 1, H or 1, T, T), and which are apart, as `relate` reads it."""
    from bermo.nn.fast.relative import visible

    return visible(sees, apart)


def is_copy(parts: Parts, x: Tensor) -> bool:
    """Tell whether a matrix is one of the step's copies, which take gradients."""
    return x.dtype == parts.dtype and x.requires_grad


def product_of(
    parts: Parts,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    copies: Sequence[Tensor] = (),
    is_transposed: bool = False,
) -> Tensor:
    """Return x Wᵀ + b, or x W + b, where W is a copy, or a view of one or of several side by side."""
    from bermo.nn.fast.product import product

    buffer = parts.grad_buffer(copies or (weight,))
    return product(x, weight, bias, None if buffer is None else buffer.view_as(weight), is_transposed)
