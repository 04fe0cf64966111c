"""Linear layers whose gradients take few launches, for GPUs; the weights are the step's bfloat16 copies.

    Joined   q, k, v = x [Wq; Wk; Wv]ᵀ + b   three layers with one input, as one product if their copies are
                                     neighbours in memory
    Gelu     a = m ⊙ h Φ(h)          dh and Σ dh, which is the bias' gradient, in one pass; m: dropout

Where a layer stands alone it is `nn.fast.product`. The twins are torch's own linear and gelu. A bias'
gradient is summed in float32, in parts and in a fixed order.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from bermo.nn.fast.product import weight_grad
from bermo.nn.fast.residual_kernels import ROUNDS, sum_parts

# Rows and columns of a tile, one program each.
HEIGHT, WIDTH = 32, 128


@triton.jit
def _tile(rows, D: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """A tile of a group's (rows, D): its columns, its indices in the whole tensor, and which exist."""
    row = tl.program_id(0) * HEIGHT + tl.arange(0, HEIGHT)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    exists = (row < rows)[:, None] & (column < D)[None, :]
    whole = (tl.program_id(2) * rows + row).to(tl.int64)
    return column, whole[:, None] * D + column[None, :], exists


@triton.jit
def _kept(seed, rows, P, ROUNDS: tl.constexpr, D: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """Dropout's factors of a tile; four neighbours share one draw of four random numbers."""
    row = tl.program_id(2) * rows + tl.program_id(0) * HEIGHT + tl.arange(0, HEIGHT)
    quarter = tl.program_id(1) * (WIDTH // 4) + tl.arange(0, WIDTH // 4)
    counter = row[:, None] * (tl.cdiv(D, WIDTH) * (WIDTH // 4)) + quarter[None, :]
    first, second, third, fourth = tl.rand4x(tl.load(seed), counter, ROUNDS)
    even = tl.join((first >= P).to(tl.int8), (third >= P).to(tl.int8))
    odd = tl.join((second >= P).to(tl.int8), (fourth >= P).to(tl.int8))
    is_kept = tl.reshape(tl.join(even, odd), (HEIGHT, WIDTH))
    return tl.where(is_kept != 0, 1.0 / (1.0 - P), 0.0)


@triton.jit
def _gelu_forward(
    h,
    bias,
    seed,
    out,
    rows,
    D: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    ADD: tl.constexpr,
    P,
    DROP: tl.constexpr,
    ROUNDS: tl.constexpr,
):
    """m ⊙ gelu(h + b), with a bias for each group of rows, or gelu(h)."""
    column, at, exists = _tile(rows, D, HEIGHT, WIDTH)
    value = tl.load(h + at, mask=exists, other=0.0).to(tl.float32)
    if ADD:
        value += tl.load(bias + tl.program_id(2) * D + column, mask=column < D, other=0.0).to(tl.float32)
    gelu = 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476))
    if DROP:
        gelu *= _kept(seed, rows, P, ROUNDS, D, HEIGHT, WIDTH)
    tl.store(out + at, gelu.to(out.dtype.element_ty), mask=exists)


@triton.jit
def _gelu_backward(
    grad,
    h,
    bias,
    seed,
    dh,
    parts,
    rows,
    D: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    ADD: tl.constexpr,
    P,
    DROP: tl.constexpr,
    ROUNDS: tl.constexpr,
):
    """dh = m ⊙ g (Φ(h) + h φ(h)) and its sums over the rows of a tile."""
    group = tl.program_id(2)
    column, at, exists = _tile(rows, D, HEIGHT, WIDTH)
    value = tl.load(h + at, mask=exists, other=0.0).to(tl.float32)
    if ADD:
        value += tl.load(bias + group * D + column, mask=column < D, other=0.0).to(tl.float32)
    g = tl.load(grad + at, mask=exists, other=0.0).to(tl.float32)
    if DROP:
        g *= _kept(seed, rows, P, ROUNDS, D, HEIGHT, WIDTH)
    cumulated = 0.5 * (1.0 + tl.erf(value * 0.7071067811865476))
    density = 0.3989422804014327 * tl.exp(-0.5 * value * value)
    of_h = (g * (cumulated + value * density)).to(dh.dtype.element_ty)
    tl.store(dh + at, of_h, mask=exists)
    # Rounded values are summed, those that the products read, as torch does.
    total = tl.sum(of_h.to(tl.float32), 0)
    part = (group * tl.num_programs(0) + tl.program_id(0)).to(tl.int64)
    tl.store(parts + part * D + column, total, mask=column < D)


@triton.jit
def _join(
    first,
    second,
    third,
    joined,
    parts,
    rows,
    D: tl.constexpr,
    BLOCKS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Write three (rows, D) side by side, and the sums over the rows of a tile."""
    row = (tl.program_id(0) * HEIGHT + tl.arange(0, HEIGHT)).to(tl.int64)
    source = tl.program_id(1) // BLOCKS
    column = (tl.program_id(1) % BLOCKS) * WIDTH + tl.arange(0, WIDTH)
    exists = (row < rows)[:, None] & (column < D)[None, :]
    at = row[:, None] * D + column[None, :]
    if source == 0:
        value = tl.load(first + at, mask=exists, other=0.0)
    elif source == 1:
        value = tl.load(second + at, mask=exists, other=0.0)
    else:
        value = tl.load(third + at, mask=exists, other=0.0)
    across = source * D + column
    tl.store(joined + row[:, None] * (3 * D) + across[None, :], value, mask=exists)
    total = tl.sum(value.to(tl.float32), 0)
    tl.store(parts + tl.program_id(0).to(tl.int64) * (3 * D) + across, total, mask=column < D)


def gelu_forward(
    h: Tensor, added: Tensor | None = None, seed: Tensor | None = None, p: float = 0.0
) -> Tensor:
    """gelu(h + b) in one pass, with dropout; b is (G, D), one row for each of G equal groups of rows of h."""
    size, num_groups = h.shape[-1], 1 if added is None else len(added)
    rows = h.numel() // size // num_groups
    out = torch.empty_like(h)
    _gelu_forward[(triton.cdiv(rows, HEIGHT), triton.cdiv(size, WIDTH), num_groups)](
        h, h if added is None else added, h if seed is None else seed, out, rows, **_options(size, added, p)
    )
    return out


def gelu_backward(
    grad: Tensor, h: Tensor, added: Tensor | None = None, seed: Tensor | None = None, p: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return dh and its sums over tiles of rows, (G, tiles, 1, D); `added` is a bias (G, D) that h lacks."""
    size, num_groups = h.shape[-1], 1 if added is None else len(added)
    rows = h.numel() // size // num_groups
    dh = torch.empty_like(h)
    tiles = triton.cdiv(rows, HEIGHT)
    parts = h.new_empty((num_groups, tiles, 1, size), dtype=torch.float32)
    _gelu_backward[(tiles, triton.cdiv(size, WIDTH), num_groups)](
        grad,
        h,
        h if added is None else added,
        h if seed is None else seed,
        dh,
        parts,
        rows,
        **_options(size, added, p),
    )
    return dh, parts


def _options(size: int, added: Tensor | None, p: float) -> dict[str, Any]:
    tile = {"D": size, "HEIGHT": HEIGHT, "WIDTH": WIDTH, "num_warps": 8}
    return tile | {"ADD": added is not None, "P": p, "DROP": p > 0, "ROUNDS": ROUNDS}


def join(grads: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return three (rows, D) as one (rows, 3 D), and its sums over tiles of rows, (1, tiles, 1, 3 D)."""
    rows, size = grads[0].shape
    joined = grads[0].new_empty((rows, 3 * size))
    tiles, blocks = triton.cdiv(rows, HEIGHT), triton.cdiv(size, WIDTH)
    parts = joined.new_empty((1, tiles, 1, 3 * size), dtype=torch.float32)
    _join[(tiles, 3 * blocks)](
        *grads, joined, parts, rows, D=size, BLOCKS=blocks, HEIGHT=HEIGHT, WIDTH=WIDTH, num_warps=8
    )
    return joined, parts


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
    """Three linear layers of one input and one shape; weights are neighbours in memory, and so are biases."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, target: Tensor | None, *given: Tensor) -> tuple[Tensor, ...]:
        weights, biases = given[:3], given[3:]
        ctx.save_for_backward(x, *weights)
        ctx.target, ctx.bias = target, biases[0]
        out = functional.linear(x, _side_by_side(weights), _side_by_side(biases))
        return out.chunk(3, dim=-1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        x, *weights = ctx.saved_tensors
        joined, parts = join([_flat(grad).contiguous() for grad in grads])
        dx = None
        if ctx.needs_input_grad[0]:
            dx = torch.mm(joined, _side_by_side(weights)).view_as(x)
        of_bias = ctx.bias.new_empty(joined.shape[1])
        sum_parts(parts, [of_bias])
        of_weight = weight_grad(joined, _flat(x), ctx.target)
        return dx, None, *of_weight.chunk(3), *of_bias.chunk(3)


class Gelu(torch.autograd.Function):
    """m ⊙ h Φ(h) with dropout p by a seed; the bias (G, D) that was added to make h, or that is added here,
    gets its gradient here.
    """

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, bias: Tensor | None, adds: bool, seed: Tensor | None = None, p: float = 0.0
    ) -> Tensor:
        h = h.contiguous()
        ctx.save_for_backward(h, seed)
        ctx.bias, ctx.adds, ctx.p = bias, adds, p
        added = bias if adds else None
        return functional.gelu(h) if added is None and p == 0 else gelu_forward(h, added, seed, p)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        h, seed = ctx.saved_tensors
        added = ctx.bias.detach() if ctx.adds else None
        dh, parts = gelu_backward(grad.contiguous(), h, added, seed, ctx.p)
        if ctx.bias is None:
            return dh, None, None, None, None
        of_bias = torch.empty_like(ctx.bias)
        sum_parts(parts, [of_bias])
        return dh, of_bias, None, None, None


def _side_by_side(tensors: Sequence[Tensor]) -> Tensor:
    """One view over tensors that are neighbours in memory, along the first axis."""
    first = tensors[0].detach()
    shape = (len(tensors) * first.shape[0], *first.shape[1:])
    return first.as_strided(shape, first.stride())
