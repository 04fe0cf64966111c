"""Queries, keys and values as one tensor, which a kernel reads and whose gradient it writes, for GPUs.

    Tables        [L_n, R_n] = X_n W_nᵀ + b_n     of all layers n at once     X_n: a row for each distance
    ThreeBare     q, k, v = x Wq, x Wk, x Wv                                    x: any number of rows

dW may be written directly to the optimiser's buffer. Another reader of W_n reads what `Tables` gives back of
it: so its gradient comes first, and that of the tables is added. The twins are torch's products.
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


class Tables(torch.autograd.Function):
    """(X, height, targets, N, W_1 …, b_1 …) -> L_1 …, R_1 …, and all W and b again.

    X is (N, rows, width). The first `height` rows of a W, and numbers of a b, make both tables of a layer; a
    b that has fewer belongs to the right one.
    """

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, height: int, targets: Sequence[Tensor | None], count: int, *given: Tensor
    ) -> tuple[Tensor, ...]:
        weights, biases = given[:count], given[count:]
        ctx.save_for_backward(rows, *weights)
        ctx.height, ctx.targets, ctx.lengths = height, targets, [len(bias) for bias in biases]
        ctx.set_materialize_grads(False)
        turned = _at_once(weights, height).transpose(1, 2)
        if biases:
            bias = torch.stack([bias[:height] for bias in biases])
            bias = functional.pad(bias, (height - bias.shape[1], 0))
            made = torch.baddbmm(bias[:, None], rows, turned)
        else:
            made = torch.bmm(rows, turned)
        left, right = made.chunk(2, 2)
        return (*left.unbind(), *right.unbind(), *(one.detach() for one in given))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        rows, *weights = ctx.saved_tensors
        count = len(weights)
        left, right, others = (grads[start : start + count] for start in range(0, 3 * count, count))
        made = _of_tables(left, right, rows, ctx.height // 2)
        of_rows = torch.bmm(made, _at_once(weights, ctx.height)) if ctx.needs_input_grad[0] else None
        of_weights = _of_weights(made.transpose(1, 2), rows, weights, others, ctx.targets)
        of_biases = _of_biases(made.sum(1), grads[3 * count :], ctx.lengths) if ctx.lengths else []
        return of_rows, None, None, None, *of_weights, *of_biases


def _of_tables(
    left: Sequence[Tensor | None], right: Sequence[Tensor | None], rows: Tensor, width: int
) -> Tensor:
    """The gradients of both tables of all layers, (N, rows, 2 · width); of what nobody read they are zero."""
    is_read = all(one is not None for one in (*left, *right))
    empty = rows if is_read else rows.new_zeros(rows.shape[1], width)
    pairs = [[empty if one is None else one for one in both] for both in zip(left, right, strict=True)]
    return torch.stack([_columns_beside(*both) for both in pairs])


def _of_weights(
    turned: Tensor,
    rows: Tensor,
    weights: Sequence[Tensor],
    others: Sequence[Tensor | None],
    targets: Sequence[Tensor | None],
) -> Sequence[Tensor]:
    """Gradients of matrices from tables', (N, height, rows), added to those of their other readers."""
    height = turned.shape[1]
    if height == len(weights[0]) and all(other is None for other in others):
        found = _one_view(targets, height)
        return torch.bmm(turned, rows, out=found).unbind()
    given = [torch.zeros_like(w) if one is None else one for w, one in zip(weights, others, strict=True)]
    found = _one_view(given, height)
    if found is not None:
        found.baddbmm_(turned, rows)
        return given
    for grad, tables, own in zip(given, turned, rows, strict=True):
        grad[:height].addmm_(tables, own)
    return given


def _of_biases(sums: Tensor, others: Sequence[Tensor | None], lengths: Sequence[int]) -> list[Tensor]:
    """Gradients of biases: the sums of tables' gradients, and those of their other readers."""
    own = list(sums[:, max(0, sums.shape[1] - lengths[0]) :].unbind())
    if any(other is None for other in others):
        more = lengths[0] - len(own[0])
        found = [functional.pad(one, (0, more)) for one in own] if more else own
        return [a if b is None else a + b for a, b in zip(found, others, strict=True)]
    given = [other for other in others if other is not None]
    torch._foreach_add_([other[: len(one)] for other, one in zip(given, own, strict=True)], own)
    return given


def _one_view(tensors: Sequence[Tensor | None], height: int) -> Tensor | None:
    """The first rows of matrices as one view, (N, height, width), if each is as far from the one before."""
    first, *others = tensors
    known = [one for one in others if one is not None]
    if first is None or len(known) < len(others) or not all(one.is_contiguous() for one in (first, *known)):
        return None
    storage = first.untyped_storage().data_ptr()
    if any(one.shape != first.shape or one.untyped_storage().data_ptr() != storage for one in known):
        return None
    places = [one.storage_offset() for one in (first, *known)]
    step = places[1] - places[0] if known else first.numel()
    if step < first.numel() or places != [places[0] + step * index for index in range(len(places))]:
        return None
    return first.as_strided((len(places), height, first.shape[1]), (step, *first.stride()))


def _at_once(weights: Sequence[Tensor], height: int) -> Tensor:
    """The first rows of matrices as one tensor: without a copy where they lie in equal steps."""
    view = _one_view([weight.detach() for weight in weights], height)
    return torch.stack([weight[:height] for weight in weights]) if view is None else view


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


class TablesOfLayer(NamedTuple):
    """Both tables of a layer, and its matrix and bias for who reads them too."""

    left: Tensor
    right: Tensor
    weight: Tensor
    bias: Tensor | None


def tables(
    rows: Tensor,
    height: int,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor] = (),
    targets: Sequence[Tensor | None] = (None,),
) -> list[TablesOfLayer]:
    """Return what the matrices of all layers make of their rows (N, rows, width); see `Tables`."""
    count = len(weights)
    made: list[Any] = list(Tables.apply(rows, height, targets, count, *weights, *biases))
    left, right, same, *rest = (made[start : start + count] for start in range(0, len(made), count))
    return [TablesOfLayer(*one) for one in zip(left, right, same, *(rest or [[None] * count]), strict=True)]


def three_bare(x: Tensor, weights: Sequence[Tensor], target: Tensor | None) -> Tensor:
    """Return x times each of three matrices (in, out), (3, rows of x, out)."""
    joined: Tensor = ThreeBare.apply(x, side_by_side(weights), target)
    return joined
