"""The layer mix in one pass each way, for GPUs: no stacked copy of the layers is made.

    out = Σ_j c_j · m_j ⊙ norm(h_j)                  c = γ softmax(α), m_j dropout's factors
    dc_j = Σ ⟨g, m_j ⊙ n_j⟩                          n_j = norm(h_j)
    across  dh_j = ρ (g_j − mean_i g_i − n_j mean_i (g_i n_i))       g_j = c_j m_j ⊙ g, means over the layers
    within  the same, means over the hidden units
    none    dh_j = g_j

The twin is LayerMix.forward. With `rows`, the index of one token in each text, only that token is mixed, and
the other tokens' gradients are zeros. The backward pass computes the statistics again, because reading the
layers once more costs less than storing them.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from bermo.nn.fast.dropout_kernels import ROUNDS
from bermo.nn.fast.kernels import LARGEST
from bermo.nn.fast.mixing_kernels import mix_backward, mix_forward

# dc is summed in so many parts at most.
NUM_PROGRAMS = 1024
# Layers: each is an argument of the kernels.
LARGEST_COUNT = 64


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
        mix_forward[(count,)](
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
        mix_backward[(num_parts,)](
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
    """Σ_j c_j dropout(norm(h_j)) of layers (B, T, D); with `rows` (B, 1) of one token a text, (B, 1, D).

    `shares` is float32, one number for each layer; `seed` is one int64 on the device.
    """
    mixed: Tensor = Mixing.apply(shares, seed, rows, norm or "none", p, eps, *layers)
    return mixed


def can_mix(layers: Sequence[Tensor], norm: str | None, rows: Tensor | None) -> bool:
    """Tell whether the kernels know the norm, mix one token of each text or all, and can count the sizes."""
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
