"""The second half of a layer between two bottlenecks: all behind its attention, for GPUs; and its twin.

    y₀ = (o W₀ᵀ + b₀ + n) ⊙ s₀ + t₀
    yᵢ = (ReLU(yᵢ₋₁ Uᵢᵀ + aᵢ) Wᵢᵀ + bᵢ + yᵢ₋₁) ⊙ sᵢ + tᵢ      for each of a few feed-forward parts
    y = (m ⊙ (yₙ Wᵀ + b) + x) ⊙ s + t             m: dropout, from Philox, by a seed on the device

ReLU and its bias are part of the product before them. Backward a sum gives dx = g ⊙ s in float32 and dh, the
same in the products' dtype, and its share of Σ g (h + x), Σ g and Σ dh; ReLU its share of Σ du.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional

from bermo.nn.fast.bottleneck import Linears, Scaled, Table, Vectors, weight_grads
from bermo.nn.fast.bottleneck_kernels import relu_backward, scaled_backward, scaled_forward
from bermo.nn.fast.bottleneck_open import Opening
from bermo.nn.fast.dropout_kernels import ROUNDS
from bermo.nn.fast.product import weight_grad


class Closed(torch.autograd.Function):
    """(o, n, x, half, seed, p, n parts, targets, W₀, W, U…, W…, b₀, b, a…, b…, s…, t…) -> y, and its copy."""

    @staticmethod
    def forward(
        ctx: Any,
        seen: Tensor,
        narrow: Tensor,
        x: Tensor,
        half: Tensor,
        seed: Tensor,
        p: float,
        num: int,
        targets: Sequence[Any],
        *given: Tensor,
    ) -> tuple[Tensor, Tensor]:
        weights, biases, scales, shifts = _divided(given, num)
        flat = seen.reshape(-1, seen.shape[-1])
        rows, size = len(flat), narrow.shape[-1]
        inner = flat.new_empty((num, rows, len(weights[2])))
        halves = flat.new_empty((num + 1, rows, size))
        sums = [functional.linear(flat, weights[0], biases[0])]
        wide = _scaled(sums[0], narrow, scales[0], shifts[0], halves[0], is_wide=num > 0)
        for i in range(num):
            first, second = weights[2 + i], weights[2 + num + i]
            torch._addmm_activation(biases[2 + i], halves[i], first.t(), out=inner[i])
            sums.append(functional.linear(inner[i], second, biases[2 + num + i]))
            vectors = scales[1 + i], shifts[1 + i]
            wide = _scaled(sums[-1], wide, *vectors, halves[i + 1], is_wide=i < num - 1)
        sums.append(functional.linear(halves[num], weights[1], biases[1]))
        copy = torch.empty(x.shape, dtype=half.dtype, device=x.device)
        y = _scaled(sums[-1], x.contiguous(), scales[-1], shifts[-1], copy, True, seed, p)
        ctx.save_for_backward(flat, narrow, half, seed, inner, halves, *sums, *weights, *scales)
        ctx.p, ctx.num, ctx.targets, ctx.shape = p, num, targets, seen.shape
        ctx.set_materialize_grads(False)
        return y.view(x.shape), copy

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, copy_grad: Tensor | None) -> tuple[Any, ...]:
        if grad is None and copy_grad is None:
            return (None,) * (8 + 8 + 6 * ctx.num)
        num = ctx.num
        flat, narrow, half, seed, inner, halves, *others = ctx.saved_tensors
        sums, weights, scales = others[: num + 2], others[num + 2 : 3 * num + 4], others[3 * num + 4 :]
        rows, size = narrow.numel() // narrow.shape[-1], narrow.shape[-1]
        sizes = [size] * 3 * (num + 1) + [half.shape[-1]] * 3 + [inner.shape[-1]] * num
        table = Table(rows, sizes, flat)
        dh, du = torch.empty_like(halves), torch.empty_like(inner)
        last = torch.empty_like(sums[-1])
        dx = _unscaled(grad, copy_grad, sums[-1], half, scales[-1], last, table, 3 * num + 3, seed, ctx.p)
        of_half, wide = torch.mm(last, weights[1]), None
        for i in reversed(range(num)):
            given = sums[i + 1], halves[i], scales[i + 1], dh[i + 1]
            wide = _unscaled(wide, of_half, *given, table, 3 * i + 3)
            of_inner = torch.mm(dh[i + 1], weights[2 + num + i])
            relu_backward[table.grid(inner.shape[-1])](
                of_inner,
                inner[i],
                du[i],
                table.parts,
                rows,
                D=inner.shape[-1],
                **table.place(3 * num + 6 + i),
            )
            of_half = torch.mm(du[i], weights[2 + i])
        dnarrow = _unscaled(wide, of_half, sums[0], narrow, scales[0], dh[0], table, 0)
        dseen = torch.mm(dh[0], weights[0]).view(ctx.shape)
        of_weights = [
            weight_grad(dh[0], flat, ctx.targets[0]),
            weight_grad(last, halves[num], ctx.targets[1]),
            *weight_grads(du, halves[:num], ctx.targets[2]),
            *weight_grads(dh[1:], inner, ctx.targets[3]),
        ]
        whole, rounded = table.sums(flat.dtype)
        # In the table: scale, shift and bias of each sum, then the biases before ReLU.
        end = 3 * num + 6
        of_biases = [*rounded[2:end:3], *rounded[end:]]
        of_biases = [of_biases[0], of_biases[num + 1], *of_biases[num + 2 :], *of_biases[1 : num + 1]]
        vectors = (*whole[0:end:3], *whole[1:end:3])
        dx = dx.view(half.shape)
        return dseen, dnarrow.view_as(narrow), dx, *[None] * 5, *of_weights, *of_biases, *vectors


def _divided(given: Vectors, num: int) -> Iterator[Vectors]:
    """The weights, biases, scales and shifts of a layer with so many feed-forward parts."""
    starts = [0, *accumulate((2 * num + 2, 2 * num + 2, num + 2, num + 2))]
    return (given[start:end] for start, end in pairwise(starts))


def _options(size: int, table: Table, p: float) -> dict[str, Any]:
    return {"D": size, "P": p, "DROP": p > 0, "ROUNDS": ROUNDS, **table.tile}


def _scaled(
    h: Tensor,
    x: Tensor,
    scale: Tensor,
    shift: Tensor,
    half: Tensor,
    is_wide: bool,
    seed: Tensor | None = None,
    p: float = 0.0,
) -> Tensor:
    """(m ⊙ h + x) ⊙ s + t, written to `half`; with `is_wide` also returned in float32."""
    rows, size = h.shape
    table = Table(rows, (), h)
    y = h.new_empty((rows, size) if is_wide else (0,), dtype=torch.float32)
    seeds = h if seed is None else seed
    scaled_forward[table.grid(size)](
        h, x, scale, shift, seeds, y, half, rows, WIDE=is_wide, **_options(size, table, p)
    )
    return y


def _unscaled(
    grad: Tensor | None,
    half_grad: Tensor | None,
    h: Tensor,
    x: Tensor,
    scale: Tensor,
    dh: Tensor,
    table: Table,
    index: int,
    seed: Tensor | None = None,
    p: float = 0.0,
) -> Tensor:
    """Return dx in float32 and write dh and the sums for scale, shift and bias."""
    rows, size = h.shape
    dx = h.new_empty((rows, size), dtype=torch.float32)
    scaled_backward[table.grid(size)](
        h if grad is None else grad.contiguous(),
        h if half_grad is None else half_grad.contiguous(),
        h,
        x,
        scale,
        h if seed is None else seed,
        dx,
        dh,
        table.parts,
        rows,
        WIDE=grad is not None,
        HALF=half_grad is not None,
        **_options(size, table, p) | table.place(index),
    )
    return dx


@dataclass(frozen=True)
class Closing:
    """The layers behind the attention: its own, the feed-forward parts', and the one to the width of x."""

    first: Linears
    last: Linears
    ups: Linears
    downs: Linears
    scaled: Sequence[Scaled]
    """Of each sum in turn."""


def closed(
    seen: Tensor, opening: Opening, half: Tensor, layers: Closing, seed: Tensor, p: float
) -> tuple[Tensor, Tensor]:
    """Return y in float32 and its copy in the dtype of `half`, which is that of x; `seed` is of dropout."""
    linears = (layers.first, layers.last, layers.ups, layers.downs)
    weights = [weight for one in linears for weight in one.weights]
    biases = [bias for one in linears for bias in one.biases]
    scales = [one.scale for one in layers.scaled]
    shifts = [one.shift for one in layers.scaled]
    targets = [one.target for one in linears]
    num, tensors = len(layers.ups.weights), (seen, opening.narrow, opening.x, half)
    given = (seed, p, num, targets, *weights, *biases, *scales, *shifts)
    return cast(tuple[Tensor, Tensor], Closed.apply(*tensors, *given))


def closed_twin(seen: Tensor, opening: Opening, layers: Closing, kept: Tensor | float = 1.0) -> Tensor:
    """`closed` in plain torch; `kept` holds dropout's factors."""

    def add(h: Tensor, x: Tensor, one: Scaled) -> Tensor:
        return (h.float() + x) * one.scale + one.shift

    first, last = layers.first, layers.last
    h = functional.linear(seen, first.weights[0], first.biases[0])
    y = add(h, opening.narrow, layers.scaled[0])
    ups = zip(layers.ups.weights, layers.ups.biases, strict=True)
    downs = zip(layers.downs.weights, layers.downs.biases, strict=True)
    for up, down, one in zip(ups, downs, layers.scaled[1:-1], strict=True):
        inner = functional.relu(functional.linear(y.to(seen.dtype), *up))
        y = add(functional.linear(inner, *down), y, one)
    h = functional.linear(y.to(seen.dtype), last.weights[0], last.biases[0])
    return add(h.float() * kept, opening.x, layers.scaled[-1])
