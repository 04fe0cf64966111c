"""Queries, keys and values as one tensor, which a kernel reads and whose gradient it writes, for GPUs.

    JoinedTable   [q, k, v] = x Wᵀ + b     [B, A] = R [Wq, Wk]ᵀ + [bq, bk]     R: a row for each distance
    ThreeBare     q, k, v = x Wq, x Wk, x Wv                                     x: any number of rows

dW may be written directly to the optimiser's buffer, and that of a second reader is added there. A bias that
is given detached gets its gradient from what follows (`nn.fast.relative`). The twins are torch's products.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from bermo.nn.fast.shadow import are_side_by_side


class Layout(NamedTuple):
    """Which axes of a joined product are part (query, key, value), text, head and token; units are last."""

    part: int
    text: int
    head: int
    token: int

    def views(self, joined: Tensor) -> tuple[Tensor, ...]:
        """q, k and v (B, H, T, D)."""
        return joined.permute(*self, 4).unbind()

    def output(self, joined: Tensor) -> tuple[Tensor, Tensor]:
        """A new tensor for all heads of a token side by side, in the order of the product, and its view."""
        texts, heads, tokens, size = (joined.shape[axis] for axis in (*self[1:], 4))
        if self.text < self.token:
            made = joined.new_empty(texts, tokens, heads, size)
            return made, made.transpose(1, 2)
        made = joined.new_empty(tokens, texts, heads, size)
        return made, made.permute(1, 2, 0, 3)

    def steps(self, joined: Tensor) -> tuple[int, int]:
        """How far parts, and heads, are from each other in a bias of the product."""
        heads, size = joined.shape[self.head], joined.shape[4]
        return (heads * size, size) if self.part < self.head else (size, 3 * size)


class SideBySide(torch.autograd.Function):
    """One view over tensors that are neighbours in memory, along the first axis."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> Tensor:
        ctx.count = len(tensors)
        first = tensors[0].detach()
        return first.as_strided((ctx.count * len(first), *first.shape[1:]), first.stride())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        return grad.chunk(ctx.count)


def side_by_side(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors of one shape as one, along the first axis: without a copy where they are neighbours."""
    if are_side_by_side(tensors):
        joined: Tensor = SideBySide.apply(*tensors)
        return joined
    return torch.cat(list(tensors))


class JoinedTable(torch.autograd.Function):
    """(x, W, b, target, R) -> [q, k, v], A and B, in which x's part of b's gradient is left to its reader."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, target: Tensor | None, rows: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(x, weight, rows)
        ctx.target = target
        half = 2 * len(weight) // 3
        second, first = functional.linear(rows, weight[:half], bias[:half]).chunk(2, 1)
        return functional.linear(x, weight, bias), first, second

    @staticmethod
    def backward(ctx: Any, grad: Tensor, of_first: Tensor, of_second: Tensor) -> tuple[Any, ...]:
        x, weight, rows = ctx.saved_tensors
        flat, whole = grad.reshape(-1, grad.shape[-1]), x.reshape(-1, x.shape[-1])
        of_tables, half = _columns_beside(of_second, of_first), 2 * len(weight) // 3
        of_x = torch.mm(flat, weight).view_as(x) if ctx.needs_input_grad[0] else None
        of_rows = torch.mm(of_tables, weight[:half]) if ctx.needs_input_grad[4] else None
        of_weight = None
        if ctx.needs_input_grad[1]:
            of_weight = torch.empty_like(weight) if ctx.target is None else ctx.target.view_as(weight)
            torch.mm(flat.t(), whole, out=of_weight)
            of_weight[:half].addmm_(of_tables.t(), rows)
        of_bias = weight.new_zeros(len(weight)) if ctx.needs_input_grad[2] else None
        if of_bias is not None:
            torch.sum(of_tables, 0, out=of_bias[:half])
        return of_x, of_weight, of_bias, None, of_rows


def _columns_beside(left: Tensor, right: Tensor) -> Tensor:
    """Two matrices as one, the second right of the first: without a copy where they lie so."""
    rows, width = left.shape
    lies_so = left.stride() == right.stride() == (2 * width, 1)
    if lies_so and right.data_ptr() - left.data_ptr() == width * left.element_size():
        return left.as_strided((rows, 2 * width), left.stride())
    return torch.cat([left, right], 1)


class ThreeBare(torch.autograd.Function):
    """(x, W, target) -> (3, rows, out); the transposed matrices (3 · in, out) lie one below the other."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, target: Tensor | None) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        ctx.save_for_backward(flat, weight)
        ctx.target, ctx.shape = target, x.shape
        return torch.bmm(flat.expand(3, *flat.shape), weight.view(3, flat.shape[-1], -1))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        flat, weight = ctx.saved_tensors
        three = weight.view(3, flat.shape[-1], -1)
        of_x = of_weight = None
        if ctx.needs_input_grad[0]:
            of_x = torch.mm(grad[0], three[0].t())
            of_x.addmm_(grad[1], three[1].t()).addmm_(grad[2], three[2].t())
            of_x = of_x.view(ctx.shape)
        if ctx.needs_input_grad[1]:
            of_weight = torch.empty_like(weight) if ctx.target is None else ctx.target.view_as(weight)
            torch.bmm(flat.t().expand(3, *flat.t().shape), grad, out=of_weight.view_as(three))
        return of_x, of_weight, None


def joined_table(
    x: Tensor, weight: Tensor, bias: Tensor, target: Tensor | None, rows: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return x Wᵀ + b, and what the matrices of keys and of queries make of the rows of a table, A and B."""
    joined, first, second = JoinedTable.apply(x, weight, bias, target, rows)
    return joined, first, second


def three_bare(x: Tensor, weights: Sequence[Tensor], target: Tensor | None) -> Tensor:
    """Return x times each of three matrices (in, out), (3, rows of x, out)."""
    joined: Tensor = ThreeBare.apply(x, side_by_side(weights), target)
    return joined
