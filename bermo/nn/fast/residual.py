"""y = LayerNorm(x + dropout(h)) in one pass each way, for graphics cards: Triton kernels and their twin in plain torch.

    z = x + m ⊙ h / (1 − p)          m from Philox, by a seed that lies on the device: drawn again in the backward pass, never kept
    y = γ (z − μ) ρ + β              ρ = 1 / √(σ² + ε)
    dz = ρ (g γ − mean(g γ) − ẑ mean(g γ ẑ))      dx = dz      dh = m ⊙ dz / (1 − p)
    dγ = Σ g ẑ     dβ = Σ g     and Σ dh, which is the gradient of the bias that h was made with

y leaves in float32 and, where the next products want it, also in bfloat16; the gradients of both come back here, so no cast and no
addition is launched for them. γ, β and the bias may have one row for each group: the rows of x then fall into as many equal groups.
Four rows share one draw of four random numbers.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

ROUNDS = 7  # of Philox: the fewest that pass BigCrush (Salmon et al. 2011)
NUM_PROGRAMS = 512  # sums over rows are made in so many parts at most
LARGEST = 2**31  # places are counted in 32 bits


@triton.jit
def _chance(seed, places, P, ROUNDS: tl.constexpr):
    """Four factors for each place: 0 with chance P, else 1 / (1 − P)."""
    first, second, third, fourth = tl.rand4x(tl.load(seed), places, ROUNDS)
    grown = 1.0 / (1.0 - P)
    return (
        tl.where(first >= P, grown, 0.0),
        tl.where(second >= P, grown, 0.0),
        tl.where(third >= P, grown, 0.0),
        tl.where(fourth >= P, grown, 0.0),
    )


@triton.jit
def _forward(
    h,
    x,
    gamma,
    beta,
    bias,
    seed,
    y,
    half,
    means,
    spreads,
    rows,
    eps,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    P,
    DROP: tl.constexpr,
    ROUNDS: tl.constexpr,
    HALF: tl.constexpr,
    ADD: tl.constexpr,
):
    """Four rows of one group."""
    block, group = tl.program_id(0), tl.program_id(1)
    columns = tl.arange(0, WIDTH)
    is_column = columns < D
    scale = tl.load(gamma + group * D + columns, mask=is_column, other=0.0).to(tl.float32)
    shift = tl.load(beta + group * D + columns, mask=is_column, other=0.0).to(tl.float32)
    if ADD:
        added = tl.load(bias + group * D + columns, mask=is_column, other=0.0).to(tl.float32)
    if DROP:
        number = group * tl.num_programs(0) + block
        first, second, third, fourth = _chance(seed, number * D + columns, P, ROUNDS)
    for k in tl.static_range(4):
        local = block * 4 + k
        exists = is_column & (local < rows)
        row = (group * rows + local).to(tl.int64)
        z = tl.load(h + row * D + columns, mask=exists, other=0.0).to(tl.float32)
        if ADD:
            z += added
        if DROP:
            if k == 0:
                z *= first
            elif k == 1:
                z *= second
            elif k == 2:
                z *= third
            else:
                z *= fourth
        z += tl.load(x + row * D + columns, mask=exists, other=0.0).to(tl.float32)
        mean = tl.sum(z) / D
        centred = tl.where(is_column, z - mean, 0.0)
        spread = 1.0 / tl.sqrt(tl.sum(centred * centred) / D + eps)
        found = centred * spread * scale + shift
        tl.store(y + row * D + columns, found, mask=exists)
        if HALF:
            tl.store(half + row * D + columns, found.to(half.dtype.element_ty), mask=exists)
        tl.store(means + row, mean, mask=local < rows)
        tl.store(spreads + row, spread, mask=local < rows)


@triton.jit
def _backward(
    h,
    x,
    gamma,
    bias,
    seed,
    means,
    spreads,
    grad,
    half_grad,
    dh,
    dx,
    parts,
    rows,
    num_blocks,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    P,
    DROP: tl.constexpr,
    ROUNDS: tl.constexpr,
    WIDE: tl.constexpr,
    HALF: tl.constexpr,
    NUM: tl.constexpr,
    ADD: tl.constexpr,
):
    """NUM blocks of four rows of one group, and their sums for γ, β and the bias."""
    part, group = tl.program_id(0), tl.program_id(1)
    columns = tl.arange(0, WIDTH)
    is_column = columns < D
    scale = tl.load(gamma + group * D + columns, mask=is_column, other=0.0).to(tl.float32)
    if ADD:
        added = tl.load(bias + group * D + columns, mask=is_column, other=0.0).to(tl.float32)
    of_scale = tl.zeros([WIDTH], tl.float32)
    of_shift = tl.zeros([WIDTH], tl.float32)
    of_bias = tl.zeros([WIDTH], tl.float32)
    for i in range(NUM):
        block = part * NUM + i
        if DROP:
            number = group * num_blocks + block
            first, second, third, fourth = _chance(seed, number * D + columns, P, ROUNDS)
        for k in tl.static_range(4):
            local = block * 4 + k
            exists = is_column & (local < rows)
            row = (group * rows + local).to(tl.int64)
            z = tl.load(h + row * D + columns, mask=exists, other=0.0).to(tl.float32)
            if ADD:
                z += added
            if DROP:
                if k == 0:
                    kept = first
                elif k == 1:
                    kept = second
                elif k == 2:
                    kept = third
                else:
                    kept = fourth
                z *= kept
            z += tl.load(x + row * D + columns, mask=exists, other=0.0).to(tl.float32)
            mean = tl.load(means + row, mask=local < rows, other=0.0)
            spread = tl.load(spreads + row, mask=local < rows, other=0.0)
            normal = tl.where(exists, (z - mean) * spread, 0.0)
            g = tl.zeros([WIDTH], tl.float32)
            if WIDE:
                g += tl.load(grad + row * D + columns, mask=exists, other=0.0).to(tl.float32)
            if HALF:
                g += tl.load(half_grad + row * D + columns, mask=exists, other=0.0).to(tl.float32)
            scaled = g * scale
            dz = (scaled - tl.sum(scaled) / D - normal * (tl.sum(scaled * normal) / D)) * spread
            dz = tl.where(exists, dz, 0.0)
            tl.store(dx + row * D + columns, dz.to(dx.dtype.element_ty), mask=exists)
            if DROP:
                dz *= kept
            tl.store(dh + row * D + columns, dz.to(dh.dtype.element_ty), mask=exists)
            of_scale += g * normal
            of_shift += g
            of_bias += dz
    place = parts + ((group * tl.num_programs(0) + part) * 3).to(tl.int64) * D + columns
    tl.store(place, of_scale, mask=is_column)
    tl.store(place + D, of_shift, mask=is_column)
    tl.store(place + 2 * D, of_bias, mask=is_column)


@triton.jit(do_not_specialize=["num_parts"])
def _sum_parts(
    parts,
    first,
    second,
    third,
    num_parts,
    D: tl.constexpr,
    KINDS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Add (G, parts, KINDS, D) up over the parts; each kind that is wanted goes to its own (G, D)."""
    group, kind = tl.program_id(0), tl.program_id(2)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    total = tl.zeros([HEIGHT, WIDTH], tl.float32)
    start = 0
    while start < num_parts:  # Triton's interpreter knows no range up to a number that is given
        part = start + tl.arange(0, HEIGHT)
        place = ((group * num_parts + part) * KINDS + kind).to(tl.int64)
        exists = (part < num_parts)[:, None] & (columns < D)[None, :]
        total += tl.load(parts + place[:, None] * D + columns[None, :], mask=exists, other=0.0)
        start += HEIGHT
    found = tl.sum(total, 0)
    place = group * D + columns
    is_column = columns < D
    if kind == 0:
        tl.store(first + place, found.to(first.dtype.element_ty), mask=is_column)
    elif kind == 1:
        tl.store(second + place, found.to(second.dtype.element_ty), mask=is_column)
    else:
        tl.store(third + place, found.to(third.dtype.element_ty), mask=is_column)


def sum_parts(parts: Tensor, outputs: list[Tensor]) -> None:
    """Add partial sums (G, parts, kinds, D) up into a tensor (G, D) for each of the first kinds, each in its own dtype."""
    num_groups, num_parts, kinds, size = parts.shape
    three = [outputs[min(place, len(outputs) - 1)] for place in range(3)]
    _sum_parts[(num_groups, triton.cdiv(size, 64), len(outputs))](
        parts, *three, num_parts, D=size, KINDS=kinds, HEIGHT=64, WIDTH=64, num_warps=4
    )


def _num_warps(width: int) -> int:
    return 4 if width <= 1024 else 8


class Residual(torch.autograd.Function):
    """(h, x, γ, β, bias, adds, seed, p, ε, half) -> y and its copy in another dtype (empty if None); see `residual`."""

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        x: Tensor,
        gamma: Tensor,
        beta: Tensor,
        bias: Tensor | None,
        adds: bool,
        seed: Tensor,
        p: float,
        eps: float,
        dtype: torch.dtype | None,
    ) -> tuple[Tensor, Tensor]:
        h, x, gamma, beta = h.contiguous(), x.contiguous(), gamma.contiguous(), beta.contiguous()
        size, num_groups = x.shape[-1], gamma.numel() // x.shape[-1]
        total = x.numel() // size
        rows = total // num_groups
        y = torch.empty(x.shape, dtype=torch.float32, device=x.device)
        has_half = dtype is not None
        half = torch.empty(x.shape if has_half else (0,), dtype=dtype, device=x.device)
        means, spreads = torch.empty(2, total, dtype=torch.float32, device=x.device).unbind()
        width = triton.next_power_of_2(size)
        _forward[(triton.cdiv(rows, 4), num_groups)](
            h,
            x,
            gamma,
            beta,
            bias if adds else h,
            seed,
            y,
            half,
            means,
            spreads,
            rows,
            eps,
            D=size,
            WIDTH=width,
            P=p,
            DROP=p > 0,
            ROUNDS=ROUNDS,
            HALF=has_half,
            ADD=adds,
            num_warps=_num_warps(width),
        )
        ctx.save_for_backward(h, x, gamma, seed, means, spreads)
        ctx.rows, ctx.p, ctx.beta, ctx.bias, ctx.adds = rows, p, beta.shape, bias, adds
        ctx.set_materialize_grads(False)
        if not has_half:
            ctx.mark_non_differentiable(half)
        return y, half

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, half_grad: Tensor | None) -> tuple[Any, ...]:
        if grad is None and half_grad is None:
            return (None,) * 10
        h, x, gamma, seed, means, spreads = ctx.saved_tensors
        size, num_groups = x.shape[-1], gamma.numel() // x.shape[-1]
        num_blocks = triton.cdiv(ctx.rows, 4)
        num = triton.next_power_of_2(triton.cdiv(num_blocks * num_groups, NUM_PROGRAMS))
        num_parts = triton.cdiv(num_blocks, num)
        dh, dx = torch.empty_like(h), torch.empty_like(x)
        parts = x.new_empty((num_groups, num_parts, 3, size), dtype=torch.float32)
        width = triton.next_power_of_2(size)
        wide = x if grad is None else grad.contiguous()
        _backward[(num_parts, num_groups)](
            h,
            x,
            gamma,
            ctx.bias.detach() if ctx.adds else h,
            seed,
            means,
            spreads,
            wide,
            h if half_grad is None else half_grad.contiguous(),
            dh,
            dx,
            parts,
            ctx.rows,
            num_blocks,
            D=size,
            WIDTH=width,
            P=ctx.p,
            DROP=ctx.p > 0,
            ROUNDS=ROUNDS,
            WIDE=grad is not None,
            HALF=half_grad is not None,
            NUM=num,
            ADD=ctx.adds,
            num_warps=_num_warps(width),
        )
        of_gamma, of_beta = torch.empty_like(gamma), torch.empty_like(gamma)
        bias = None if ctx.bias is None else torch.empty_like(ctx.bias)
        sum_parts(parts, [of_gamma, of_beta] if bias is None else [of_gamma, of_beta, bias])
        return dh, dx, of_gamma, of_beta.view(ctx.beta), bias, None, None, None, None, None


def residual(
    h: Tensor,
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    seed: Tensor,
    p: float = 0.0,
    eps: float = 1e-12,
    bias: Tensor | None = None,
    half: torch.dtype | None = None,
    adds: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """LayerNorm(x + dropout(h)) in float32, and a copy in the dtype `half`, where the next products want one.

    `bias` is what h was made with, cut off there (detached), or with `adds` what is to be added to h: its gradient, the sum of
    h's, is given here. `seed` is one int64 on the device.
    """
    y, copy = Residual.apply(h, x, gamma, beta, bias, adds, seed, p, eps, half)
    return y, None if half is None else copy


def can_serve(x: Tensor) -> bool:
    """Tell whether the kernels can count a tensor's places and hold one of its rows."""
    return x.is_floating_point() and x.numel() < LARGEST and x.shape[-1] <= 8192


def residual_twin(
    h: Tensor,
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    kept: Tensor | float = 1.0,
    eps: float = 1e-12,
) -> Tensor:
    """The same in plain torch; `kept` holds dropout's factors."""
    z = x.float() + h.float() * kept
    num_groups = math.prod(gamma.shape[:-1])
    if num_groups == 1:
        return functional.layer_norm(z, gamma.shape[-1:], gamma.flatten(), beta.flatten(), eps)
    normal = functional.layer_norm(z, gamma.shape[-1:], eps=eps).view(num_groups, -1, z.shape[-1])
    return (normal * gamma[:, None] + beta[:, None]).view(z.shape)
