"""The layer mix in one pass each way, for graphics cards: no stacked copy, each layer read where it lies.

    out = Σ_j c_j · m_j ⊙ norm(h_j)                  c = γ softmax(α), m_j dropout's factors; twin: LayerMix.forward
    dc_j = Σ ⟨g, m_j ⊙ n_j⟩                          n_j = norm(h_j)
    across  dh_j = ρ (g_j − mean_i g_i − n_j mean_i (g_i n_i))       g_j = c_j m_j ⊙ g, means over the layers
    within  the same, means over the hidden units
    none    dh_j = g_j

With `rows`, the place of one token in each text, only that token is mixed, and the other tokens' gradients are zeros. Statistics are
computed again in the backward pass: to read the layers once more costs less than to keep them. Four layers share a draw of four random numbers.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from bermo.nn.fast.residual import LARGEST, ROUNDS

NUM_PROGRAMS = 1024  # dc is summed in so many parts at most
LARGEST_COUNT = 64  # layers; each is an argument of the kernels


@triton.jit
def _row(layers, j: tl.constexpr, place, exists):
    return tl.load(layers[j] + place, mask=exists, other=0.0).to(tl.float32)


@triton.jit
def _kept(seed, place, total, j: tl.constexpr, P, ROUNDS: tl.constexpr):
    """Dropout's factors of layer j; the compiler sees that four layers make the same draw, and makes it once."""
    first, second, third, fourth = tl.rand4x(seed, place + (j // 4) * total, ROUNDS)
    if j % 4 == 0:
        chance = first
    elif j % 4 == 1:
        chance = second
    elif j % 4 == 2:
        chance = third
    else:
        chance = fourth
    return tl.where(chance >= P, 1.0 / (1.0 - P), 0.0)


@triton.jit
def _unit(value, is_column, D: tl.constexpr, eps):
    """Standardise over the hidden units: the result and ρ."""
    mean = tl.sum(value) / D
    centred = tl.where(is_column, value - mean, 0.0)
    spread = 1.0 / tl.sqrt(tl.sum(centred * centred) / D + eps)
    return centred * spread, spread


# A kernel of 13 layers takes seconds to build: one serves all lengths of a text.
VARYING = ["num_tokens", "total"]


@triton.jit(do_not_specialize=VARYING)
def _mix_forward(
    layers,
    shares,
    seed,
    rows,
    out,
    num_tokens,
    total,
    eps,
    J: tl.constexpr,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    NORM: tl.constexpr,
    P,
    DROP: tl.constexpr,
    ROUNDS: tl.constexpr,
    FEW: tl.constexpr,
):
    """One token: of all of them, or with FEW the chosen one of a text."""
    token = tl.program_id(0)
    column = tl.arange(0, WIDTH)
    exists = column < D
    source = token
    if FEW:
        source = token * num_tokens + tl.load(rows + token).to(tl.int32)
    place = source.to(tl.int64) * D + column
    draw = token * D + column
    luck = tl.load(seed)
    mean = tl.zeros([WIDTH], tl.float32)
    if NORM == "across":
        for j in tl.static_range(J):
            mean += _row(layers, j, place, exists)
        mean /= J
    squares = tl.zeros([WIDTH], tl.float32)
    mixed = tl.zeros([WIDTH], tl.float32)
    for j in tl.static_range(J):
        value = _row(layers, j, place, exists)
        if NORM == "across":
            value -= mean
            squares += value * value
        elif NORM == "within":
            value, _ = _unit(value, exists, D, eps)
        if DROP:
            value *= _kept(luck, draw, total, j, P, ROUNDS)
        mixed += tl.load(shares + j) * value
    if NORM == "across":
        mixed /= tl.sqrt(squares / J + eps)
    found = mixed.to(out.dtype.element_ty)
    tl.store(out + token.to(tl.int64) * D + column, found, mask=exists)


@triton.jit
def _token_backward(
    layers,
    grads,
    shares,
    luck,
    g,
    place,
    draw,
    total,
    eps,
    exists,
    J: tl.constexpr,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    NORM: tl.constexpr,
    P,
    DROP: tl.constexpr,
    ROUNDS: tl.constexpr,
    JS: tl.constexpr,
):
    """Write the gradient of each layer of one token; return its part of dc."""
    number = tl.arange(0, JS)
    of_shares = tl.zeros([JS], tl.float32)
    mean = tl.zeros([WIDTH], tl.float32)
    spread = tl.zeros([WIDTH], tl.float32)
    pull = tl.zeros([WIDTH], tl.float32)
    turn = tl.zeros([WIDTH], tl.float32)
    if NORM == "across":
        for j in tl.static_range(J):
            mean += _row(layers, j, place, exists)
        mean /= J
        for j in tl.static_range(J):
            value = _row(layers, j, place, exists) - mean
            spread += value * value
            pushed = tl.load(shares + j) * g
            if DROP:
                pushed *= _kept(luck, draw, total, j, P, ROUNDS)
            pull += pushed
            turn += pushed * value
        spread = 1.0 / tl.sqrt(spread / J + eps)
        pull /= J
        turn = turn * spread / J
    for j in tl.static_range(J):
        value = _row(layers, j, place, exists)
        kept = g
        if DROP:
            kept = g * _kept(luck, draw, total, j, P, ROUNDS)
        pushed = tl.load(shares + j) * kept
        if NORM == "across":
            value = (value - mean) * spread
            found = (pushed - pull - value * turn) * spread
        elif NORM == "within":
            value, rho = _unit(value, exists, D, eps)
            found = (pushed - tl.sum(pushed) / D - value * (tl.sum(pushed * value) / D)) * rho
        else:
            found = pushed
        of_shares += tl.where(number == j, tl.sum(tl.where(exists, kept * value, 0.0)), 0.0)
        tl.store(grads[j] + place, found.to(grads[j].dtype.element_ty), mask=exists)
    return of_shares


@triton.jit(do_not_specialize=[*VARYING, "num_rows", "num"])
def _mix_backward(
    layers,
    grads,
    shares,
    seed,
    rows,
    grad,
    parts,
    num_rows,
    num_tokens,
    total,
    num,
    eps,
    J: tl.constexpr,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    NORM: tl.constexpr,
    P,
    DROP: tl.constexpr,
    ROUNDS: tl.constexpr,
    FEW: tl.constexpr,
    JS: tl.constexpr,
):
    """`num` tokens: the gradient of each layer, zeros for a token that is not read, and a part of dc."""
    column = tl.arange(0, WIDTH)
    number = tl.arange(0, JS)
    luck = tl.load(seed)
    of_shares = tl.zeros([JS], tl.float32)
    source = tl.program_id(0) * num
    end = source + num
    while source < end:
        is_read = source < num_rows
        exists = (column < D) & is_read
        place = source.to(tl.int64) * D + column
        token = source
        if FEW:
            token = source // num_tokens
            chosen = tl.load(rows + token, mask=is_read, other=-1).to(tl.int32)
            is_read = is_read & (chosen == source % num_tokens)
        if is_read:
            g = tl.load(grad + token.to(tl.int64) * D + column, mask=exists, other=0.0)
            of_shares += _token_backward(
                layers,
                grads,
                shares,
                luck,
                g.to(tl.float32),
                place,
                token * D + column,
                total,
                eps,
                exists,
                J,
                D,
                WIDTH,
                NORM,
                P,
                DROP,
                ROUNDS,
                JS,
            )
        elif FEW:
            for j in tl.static_range(J):
                zeros = tl.zeros([WIDTH], tl.float32).to(grads[j].dtype.element_ty)
                tl.store(grads[j] + place, zeros, mask=exists)
        source += 1
    tl.store(parts + tl.program_id(0) * J + number, of_shares, mask=number < J)


class Mixing(torch.autograd.Function):
    """(shares c, seed, rows, norm, p, ε, *layers) -> the mix, in the last layer's dtype; see `mixing`."""

    @staticmethod
    def forward(
        ctx: Any,
        shares: Tensor,
        seed: Tensor,
        rows: Tensor | None,
        norm: str,
        p: float,
        eps: float,
        *layers: Tensor,
    ) -> Tensor:
        layers = tuple(layer.contiguous() for layer in layers)
        shares = shares.contiguous()
        num_texts, num_tokens, size = layers[0].shape
        count = num_texts * (num_tokens if rows is None else 1)
        shape = (num_texts, num_tokens if rows is None else 1, size)
        out = torch.empty(shape, dtype=layers[-1].dtype, device=shares.device)
        width = triton.next_power_of_2(size)
        _mix_forward[(count,)](
            layers,
            shares,
            seed,
            seed if rows is None else rows,
            out,
            num_tokens,
            count * size,
            eps,
            J=len(layers),
            D=size,
            WIDTH=width,
            NORM=norm,
            P=p,
            DROP=p > 0,
            ROUNDS=ROUNDS,
            FEW=rows is not None,
            num_warps=4,
        )
        ctx.save_for_backward(shares, seed, *([] if rows is None else [rows]), *layers)
        ctx.options = (norm, p, eps, rows is not None)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        norm, p, eps, is_few = ctx.options
        shares, seed, *rest = ctx.saved_tensors
        rows, layers = (rest[0], tuple(rest[1:])) if is_few else (seed, tuple(rest))
        num_texts, num_tokens, size = layers[0].shape
        num_rows = num_texts * num_tokens
        num = triton.next_power_of_2(triton.cdiv(num_rows, NUM_PROGRAMS))
        num_parts = triton.cdiv(num_rows, num)
        grads = tuple(torch.empty_like(layer) for layer in layers)
        parts = torch.empty(num_parts, len(layers), dtype=torch.float32, device=shares.device)
        width = triton.next_power_of_2(size)
        _mix_backward[(num_parts,)](
            layers,
            grads,
            shares,
            seed,
            rows,
            grad.contiguous(),
            parts,
            num_rows,
            num_tokens,
            grad.numel(),
            num,
            eps,
            J=len(layers),
            D=size,
            WIDTH=width,
            NORM=norm,
            P=p,
            DROP=p > 0,
            ROUNDS=ROUNDS,
            FEW=is_few,
            JS=triton.next_power_of_2(len(layers)),
            num_warps=8,
        )
        return parts.sum(0), None, None, None, None, None, *grads


def mixing(
    layers: Sequence[Tensor],
    shares: Tensor,
    seed: Tensor,
    rows: Tensor | None = None,
    norm: str | None = "across",
    p: float = 0.0,
    eps: float = 1e-5,
) -> Tensor:
    """Σ_j c_j dropout(norm(h_j)) of layers (B, T, D); with `rows` (B, 1) of one token of each text, (B, 1, D).

    `shares` is float32, one number a layer; `seed` is one int64 on the device.
    """
    found: Tensor = Mixing.apply(shares, seed, rows, norm or "none", p, eps, *layers)
    return found


def can_mix(layers: Sequence[Tensor], norm: str | None, rows: Tensor | None) -> bool:
    """Tell whether the kernels can serve: a norm they know, one token a text or all, sizes they can count."""
    first = layers[0]
    return (
        norm in ("across", "within", None)
        and first.dim() == 3
        and (rows is None or rows.shape == (first.shape[0], 1))
        and len(layers) <= LARGEST_COUNT
        and first.numel() * len(layers) < LARGEST
        and first.shape[-1] <= 8192
        and all(layer.shape == first.shape and layer.is_floating_point() for layer in layers)
    )
