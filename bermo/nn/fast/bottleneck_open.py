"""The first half of a layer between two bottlenecks: what its attention reads, for GPUs; and its twin.

    v, n, c = x [Wv; Wn; Wc]ᵀ + b      n ← n ⊙ s + t      c ← c ⊙ s' + t'      q, k = c [Wq; Wk]ᵀ + b

Two products and one kernel forward; backward two kernels and two products each way. x is handed on, so that
its gradient comes through here in float32, while that of its copy is what the products give.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor
from torch.nn import functional

from bermo.nn.fast.bottleneck import WIDTH, Linears, Scaled, Table, beside
from bermo.nn.fast.bottleneck_kernels import open_backward, open_forward, place_three
from bermo.nn.fast.product import weight_grad


class Opened(torch.autograd.Function):
    """(half, x, targets, 3 W, 3 b, 2 W, 2 b, s, t, s', t') -> q, k, v, n in float32, c, and x as it is."""

    @staticmethod
    def forward(ctx: Any, half: Tensor, x: Tensor, targets: Sequence[Any], *given: Tensor) -> Any:
        wide, pair, (scale, shift, shared_scale, shared_shift) = given[:6], given[6:10], given[10:]
        flat = half.reshape(-1, half.shape[-1])
        rows, size = len(flat), len(wide[0])
        joined = functional.linear(flat, beside(wide[:3]), beside(wide[3:]))
        narrow = joined.new_empty((rows, size), dtype=torch.float32)
        shared = joined.new_empty((rows, size))
        table = Table(rows, (), joined)
        open_forward[table.grid(size)](
            joined, scale, shift, shared_scale, shared_shift, narrow, shared, rows, D=size, **table.tile
        )
        both = functional.linear(shared, beside(pair[:2]), beside(pair[2:]))
        ctx.save_for_backward(flat, joined, shared, scale, shared_scale, *wide[:3], *pair[:2])
        ctx.targets, ctx.shape = targets, half.shape
        ctx.set_materialize_grads(False)
        found = (*both.split(size, -1), joined[:, :size], narrow, shared)
        return *(one.view(*half.shape[:-1], size) for one in found), x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        flat, joined, shared, scale, shared_scale, *weights = ctx.saved_tensors
        rows, size = shared.shape
        dq, dk, dv, dnarrow = (_rows_of(grad, shared) for grad in grads[:4])
        table = Table(rows, [size] * 9, joined)
        dboth, djoined = shared.new_empty((rows, 2 * size)), torch.empty_like(joined)
        blocks = triton.cdiv(size, WIDTH)
        place_three[(table.blocks, 3 * blocks)](
            dq,
            dk,
            dv,
            dboth,
            djoined,
            table.parts,
            rows,
            D=size,
            BLOCKS=blocks,
            COLUMNS=table.starts[-1],
            **table.tile,
        )
        dshared = torch.mm(dboth, beside(weights[3:]))
        if grads[4] is not None:
            dshared = dshared + grads[4].view_as(dshared)
        open_backward[table.grid(size)](
            dnarrow,
            dshared,
            joined,
            scale,
            shared_scale,
            djoined,
            table.parts,
            rows,
            D=size,
            **table.place(3),
        )
        dhalf = torch.mm(djoined, beside(weights[:3])).view(ctx.shape)
        of_wide = weight_grad(djoined, flat, ctx.targets[0]).chunk(3)
        of_pair = weight_grad(dboth, shared, ctx.targets[1]).chunk(2)
        wide, half = table.sums(shared.dtype)
        # In the table: the biases of q, k and v, then scale, shift and bias of either bottleneck.
        of_biases = (half[2], half[5], half[8])
        vectors = (wide[3], wide[4], wide[6], wide[7])
        return dhalf, grads[5], None, *of_wide, *of_biases, *of_pair, half[0], half[1], *vectors


def _rows_of(grad: Tensor | None, like: Tensor) -> Tensor:
    """A gradient as rows without gaps; of what nobody read it is zero."""
    return torch.zeros_like(like) if grad is None else grad.reshape(like.shape).contiguous()


@dataclass(frozen=True)
class Opening:
    """What `opened` returns: q, k and v for the attention, the rest for `closed`."""

    q: Tensor
    k: Tensor
    v: Tensor
    narrow: Tensor
    shared: Tensor
    x: Tensor


def opened(half: Tensor, x: Tensor, wide: Linears, pair: Linears, own: Scaled, shared: Scaled) -> Opening:
    """Return q, k, v, n, c of a copy of x in the products' dtype, and x, whose gradient passes through here.

    `wide` are the layers of v, n and c, `pair` those of q and k.
    """
    vectors = (own.scale, own.shift, shared.scale, shared.shift)
    given = (*wide.weights, *wide.biases, *pair.weights, *pair.biases, *vectors)
    return Opening(*Opened.apply(half, x, (wide.target, pair.target), *given))


def opened_twin(
    half: Tensor, x: Tensor, wide: Linears, pair: Linears, own: Scaled, shared: Scaled
) -> Opening:
    """`opened` in plain torch."""
    layers = zip((*wide.weights, *pair.weights), (*wide.biases, *pair.biases), strict=True)
    v, n, c, q, k = layers
    narrow = functional.linear(half, *n).float() * own.scale + own.shift
    common = (functional.linear(half, *c).float() * shared.scale + shared.shift).to(half.dtype)
    both = functional.linear(common, *q), functional.linear(common, *k)
    return Opening(*both, functional.linear(half, *v), narrow, common, x)
