"""Linear layers whose gradients take few launches, for GPUs; the weights are the step's bfloat16 copies.

    Joined   q, k, v = x [Wq; Wk; Wv]ᵀ + b   three layers with one input, as one product if their copies are
                                     neighbours in memory
    Gelu     a = m ⊙ h Φ(h)          dh and Σ dh, which is the bias' gradient, in one pass; m: dropout, of
                                     bits that are drawn once

Where a layer stands alone it is `nn.fast.product`. The twins are torch's own linear and gelu. A bias'
gradient is summed in float32, in parts and in a fixed order.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor
from torch.nn import functional

from bermo.nn.fast import dense_kernels as kernels
from bermo.nn.fast.attend_bits import drawn
from bermo.nn.fast.late import Late, can_wait
from bermo.nn.fast.product import weight_grad
from bermo.nn.fast.residual_kernels import sum_parts

# Rows and columns of a tile; one warp where rows are summed, so that no two warps wait for each other.
TILE = {"HEIGHT": 8, "WIDTH": 256}
# Sums over rows are made in so many parts at most.
NUM_PARTS = 128


def gelu_forward(
    h: Tensor, added: Tensor | None = None, kept: Tensor | None = None, p: float = 0.0
) -> Tensor:
    """gelu(h + b) in one pass, with dropout by the bits of `kept_rows`; b is (G, D), one row for each of G
    equal groups of rows of h.
    """
    size, num_groups = h.shape[-1], 1 if added is None else len(added)
    rows = h.numel() // size // num_groups
    out = torch.empty_like(h)
    kernels.gelu_forward[(triton.cdiv(rows, TILE["HEIGHT"]), triton.cdiv(size, TILE["WIDTH"]), num_groups)](
        h,
        h if added is None else added,
        h if kept is None else kept,
        out,
        rows,
        num_warps=8,
        **_options(size, added, p),
    )
    return out


def gelu_backward(
    grad: Tensor,
    h: Tensor,
    parts: Tensor,
    added: Tensor | None = None,
    kept: Tensor | None = None,
    p: float = 0.0,
) -> Tensor:
    """Return dh, and write its sums over tiles of rows to parts (G, tiles, 1, D).

    `added` is a bias (G, D) that h lacks.
    """
    num_groups, tiles, _, size = parts.shape
    rows = h.numel() // size // num_groups
    dh = torch.empty_like(h)
    kernels.gelu_backward[(tiles, triton.cdiv(size, TILE["WIDTH"]), num_groups)](
        grad,
        h,
        h if added is None else added,
        h if kept is None else kept,
        dh,
        parts,
        rows,
        NUM=parts_of(rows)[1],
        num_warps=1,
        **_options(size, added, p),
    )
    return dh


def kept_rows(seed: Tensor, rows: int, num_groups: int, size: int, p: float) -> Tensor:
    """Bits that say what dropout keeps of G groups of rows: of 32 rows of a column in a number."""
    return drawn(seed, (num_groups, triton.cdiv(rows, 32), size), p)


def _options(size: int, added: Tensor | None, p: float) -> dict[str, Any]:
    return TILE | {"D": size, "ADD": added is not None, "P": p, "DROP": p > 0}


def join(grads: Sequence[Tensor], parts: Tensor) -> Tensor:
    """Return three (rows, D) as one (rows, 3 D), and write its sums over tiles of rows to parts
    (1, tiles, 1, 3 D).
    """
    rows, size = grads[0].shape
    joined = grads[0].new_empty((rows, 3 * size))
    tiles, blocks = parts.shape[1], triton.cdiv(size, TILE["WIDTH"])
    kernels.join_three[(tiles, 3 * blocks)](
        *grads, joined, parts, rows, D=size, BLOCKS=blocks, NUM=parts_of(rows)[1], num_warps=1, **TILE
    )
    return joined


def parts_of(rows: int) -> tuple[int, int]:
    """In how many parts rows are summed, and how many tiles are in each."""
    num_tiles = triton.cdiv(rows, TILE["HEIGHT"])
    num = triton.next_power_of_2(triton.cdiv(num_tiles, NUM_PARTS))
    return triton.cdiv(num_tiles, num), num


def _flat(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


class Stacked(torch.autograd.Function):
    """y_n = x_n W_nᵀ (+ b_n) of N models, rows of model 0 first; dW is written to `target`.

    Without b, what follows adds it.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor | None) -> Tensor:
        rows = x.reshape(len(weight), -1, x.shape[-1])
        ctx.save_for_backward(rows, weight)
        ctx.target, ctx.has_bias, ctx.shape = target, bias is not None, x.shape
        return _stacked(rows, weight, bias).view(*x.shape[:-1], weight.shape[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        rows, weight = ctx.saved_tensors
        flat = grad.reshape(len(weight), -1, grad.shape[-1])
        dx = torch.bmm(flat, weight).view(ctx.shape) if ctx.needs_input_grad[0] else None
        dw = _stacked_grad(flat, rows, ctx.target)
        return dx, dw, flat.sum(1) if ctx.has_bias else None, None


class StackedThree(torch.autograd.Function):
    """Three such layers with one input, as one product each way.

    Their weights are neighbours in memory, and so are their biases.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, target: Tensor | None, *given: Tensor) -> tuple[Tensor, ...]:
        weights, biases = given[:3], given[3:]
        rows = x.reshape(len(weights[0]), -1, x.shape[-1])
        ctx.save_for_backward(rows, *weights)
        ctx.target, ctx.shape = target, x.shape
        out = _stacked(_thrice(rows), _side_by_side(weights), _side_by_side(biases))
        return tuple(part.view(*x.shape[:-1], -1) for part in out.chunk(3))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        rows, *weights = ctx.saved_tensors
        flat = torch.cat([grad.reshape(len(rows), -1, grad.shape[-1]) for grad in grads])
        dx = None
        if ctx.needs_input_grad[0]:
            parts = torch.bmm(flat, _side_by_side(weights))
            dx = parts.view(3, *rows.shape).sum(0).view(ctx.shape)
        dw = _stacked_grad(flat, _thrice(rows), ctx.target)
        return dx, None, *dw.chunk(3), *flat.sum(1).chunk(3)


def _stacked(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    turned = weight.transpose(1, 2)
    if bias is None:
        return torch.bmm(rows, turned)
    return torch.baddbmm(bias[:, None], rows, turned)


def _stacked_grad(flat: Tensor, rows: Tensor, target: Tensor | None) -> Tensor:
    """dY_nᵀ X_n, written to `target` if there is one."""
    turned = flat.transpose(1, 2)
    if target is None:
        return torch.bmm(turned, rows)
    return torch.bmm(turned, rows, out=target.view_as(target))


def _thrice(rows: Tensor) -> Tensor:
    return rows.expand(3, *rows.shape).reshape(-1, *rows.shape[1:])


class Joined(torch.autograd.Function):
    """Three linear layers of one input and one shape; weights are neighbours in memory, and so are biases.

    With `late` their biases' gradients are made at the end of the backward pass, and an attention that has
    written the three gradients side by side, with their sums, hands them over (`nn.fast.tiles`).
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, target: Tensor | None, late: Late | None, *given: Tensor
    ) -> tuple[Tensor, ...]:
        weights, biases = given[:3], given[3:]
        ctx.save_for_backward(x, *weights)
        ctx.target, ctx.bias = target, biases[0]
        ctx.late, ctx.place = late, None
        if late is not None and can_wait(*biases):
            shape = (1, parts_of(x.numel() // x.shape[-1])[0], 1, 3 * len(biases[0]))
            ctx.place = late.take(shape, [biases])
        out = functional.linear(x, _side_by_side(weights), _side_by_side(biases))
        if late is not None and ctx.place is not None:
            late.expect(out, ctx.place)
        return out.chunk(3, dim=-1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        x, *weights = ctx.saved_tensors
        joined = None if ctx.place is None else ctx.late.take_handed(grads)
        if joined is None:
            flat = [_flat(grad).contiguous() for grad in grads]
            parts = _parts(ctx, flat[0], (1, 3 * flat[0].shape[-1]))
            joined = join(flat, parts)
        joined = joined.view(-1, 3 * grads[0].shape[-1])
        dx = None
        if ctx.needs_input_grad[0]:
            dx = torch.mm(joined, _side_by_side(weights)).view_as(x)
        of_weight = weight_grad(joined, _flat(x), ctx.target)
        if ctx.place is not None:
            return dx, None, None, *of_weight.chunk(3), *(None,) * 3
        of_bias = ctx.bias.new_empty(joined.shape[1])
        sum_parts(parts, [of_bias])
        return dx, None, None, *of_weight.chunk(3), *of_bias.chunk(3)


class Gelu(torch.autograd.Function):
    """m ⊙ h Φ(h) with dropout p by a seed; the bias (G, D) that was added to make h, or that is added here,
    gets its gradient here, or with `late` at the end of the backward pass.
    """

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        bias: Tensor | None,
        adds: bool,
        seed: Tensor | None = None,
        p: float = 0.0,
        late: Late | None = None,
    ) -> Tensor:
        h = h.contiguous()
        size, added = h.shape[-1], bias if adds else None
        num_groups = 1 if added is None else len(added)
        rows = h.numel() // size // num_groups
        ctx.late, ctx.place = late, None
        if late is not None and bias is not None and can_wait(bias):
            ctx.place = late.take((num_groups, parts_of(rows)[0], 1, size), [[bias]])
        kept = None if seed is None or p == 0 else kept_rows(seed, rows, num_groups, size, p)
        ctx.save_for_backward(h, kept)
        ctx.bias, ctx.adds, ctx.p = bias, adds, p
        return gelu_forward(h, added, kept, p)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        h, kept = ctx.saved_tensors
        added = ctx.bias.detach() if ctx.adds else None
        parts = _parts(ctx, h, (1 if added is None else len(added), h.shape[-1]))
        dh = gelu_backward(grad.contiguous(), h, parts, added, kept, ctx.p)
        if ctx.bias is None or ctx.place is not None:
            return dh, *(None,) * 5
        of_bias = torch.empty_like(ctx.bias)
        sum_parts(parts, [of_bias])
        return dh, of_bias, *(None,) * 4


def _parts(ctx: Any, h: Tensor, sums: tuple[int, int]) -> Tensor:
    """Memory for the sums over tiles of rows: (groups, tiles, 1, size) for `sums` (groups, size)."""
    if ctx.place is not None:
        found: Tensor = ctx.late.parts(ctx.place)
        return found
    groups, size = sums
    tiles = parts_of(h.numel() // h.shape[-1] // groups)[0]
    return h.new_empty((groups, tiles, 1, size), dtype=torch.float32)


def _side_by_side(tensors: Sequence[Tensor]) -> Tensor:
    """One view over tensors that are neighbours in memory, along the first axis."""
    first = tensors[0].detach()
    shape = (len(tensors) * first.shape[0], *first.shape[1:])
    return first.as_strided(shape, first.stride())
