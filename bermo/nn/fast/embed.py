"""What encoders begin with, in one kernel each way, for GPUs: dropout(LayerNorm(W[ids] + P[ids'] + …)).

    z = Σ over tables W of W[ids]        y = m ⊙ (γ (z − μ) ρ + β) / (1 − p)        ρ = 1 / √(σ² + ε)
    dz as for `nn.fast.residual`         dW[k] = Σ dz over the positions that have read row k

m comes from Philox, by a seed on the device, and is drawn again in the backward pass. z is not kept: its rows
are read again. Of several models, along the first axis of all tables, γ and β, each has a group of positions.
y is returned in float32 and, if the next products need it, also in bfloat16.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
import triton
from torch import Tensor
from torch.nn import functional

from bermo.nn.fast.dropout_kernels import ROUNDS
from bermo.nn.fast.embed_kernels import embed_backward, embed_forward
from bermo.nn.fast.kernels import LARGEST
from bermo.nn.fast.late import Late, can_wait
from bermo.nn.fast.residual import parts_of, tile_of
from bermo.nn.fast.residual_kernels import sum_parts
from bermo.nn.fast.rows import MOST_POSITIONS, Tables, in_threes


class Plan(NamedTuple):
    """What is not a tensor that takes a gradient."""

    tables: Tables
    ids: Sequence[Tensor]
    """Of each table, one id for each position, or fewer that repeat."""
    shape: torch.Size
    """Of the positions: (texts, tokens)."""
    p: float
    eps: float
    half: torch.dtype | None
    late: Late | None


class Embed(torch.autograd.Function):
    """(plan, seed, γ, β, tables) -> y and its copy, which is empty where there is no dtype for it."""

    @staticmethod
    def forward(
        ctx: Any, plan: Plan, seed: Tensor, gamma: Tensor, beta: Tensor, *weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        size, num_groups = gamma.shape[-1], gamma.numel() // gamma.shape[-1]
        num = plan.shape.numel()
        rows = num // num_groups
        y = torch.empty(*plan.shape, size, dtype=torch.float32, device=gamma.device)
        has_half = plan.half is not None
        half = y.new_empty(y.shape if has_half else (0,), dtype=plan.half)
        means, spreads = y.new_empty(2, num).unbind()
        keys = torch.empty(len(weights), num, dtype=torch.int32, device=y.device)
        ids = [each.reshape(-1) for each in plan.ids]
        tile = tile_of(size)
        height = max(1, 512 // tile["WIDTH"])
        embed_forward[(triton.cdiv(rows, height), num_groups)](
            *in_threes(weights),
            *in_threes(ids),
            *in_threes([each.numel() for each in ids]),
            *in_threes([weight.shape[-2] for weight in weights]),
            gamma,
            beta,
            seed,
            y,
            half,
            means,
            spreads,
            keys,
            rows,
            plan.eps,
            plan.p,
            HEIGHT=height,
            HALF=has_half,
            num_warps=height * tile["WIDTH"] // 128,
            **_options(plan, len(weights)),
            **tile,
        )
        ctx.save_for_backward(seed, gamma, means, spreads, keys, *weights)
        ctx.plan, ctx.rows, ctx.beta = plan, rows, beta.shape
        ctx.periods = [min(each.numel(), rows) for each in ids]
        ctx.place = None
        if plan.late is not None and can_wait(gamma, beta):
            num_parts, _ = parts_of(rows, num_groups, 1)
            ctx.place = plan.late.take((num_groups, num_parts, 2, size), [[gamma], [beta]])
        ctx.set_materialize_grads(False)
        if not has_half:
            ctx.mark_non_differentiable(half)
        return y, half

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, half_grad: Tensor | None) -> tuple[Any, ...]:
        seed, gamma, means, spreads, keys, *weights = ctx.saved_tensors
        plan, num_inputs = cast(Plan, ctx.plan), 4 + len(weights)
        if grad is None and half_grad is None:
            return (None,) * num_inputs
        size, num_groups = gamma.shape[-1], gamma.numel() // gamma.shape[-1]
        num_parts, num_rows = parts_of(ctx.rows, num_groups, 1)
        tile = tile_of(size)
        if ctx.place is None:
            parts = means.new_empty(num_groups, num_parts, 2, size)
        else:
            parts = cast(Late, plan.late).parts(ctx.place)
        dz = means.new_empty(means.numel(), size)
        embed_backward[(num_parts, num_groups)](
            *in_threes(weights),
            keys,
            gamma,
            seed,
            means,
            spreads,
            dz if grad is None else grad.contiguous(),
            dz if half_grad is None else half_grad.contiguous(),
            dz,
            parts,
            ctx.rows,
            plan.p,
            WIDE=grad is not None,
            HALF=half_grad is not None,
            NUM=num_rows,
            num_warps=tile["WIDTH"] // 128,
            **_options(plan, len(weights)),
            **tile,
        )
        of_gamma = of_beta = None
        if ctx.place is None:
            of_gamma, of_beta = torch.empty_like(gamma), torch.empty_like(gamma)
            sum_parts(parts, [of_gamma, of_beta])
            of_beta = of_beta.view(ctx.beta)
        of_tables: Sequence[Tensor | None] = [None] * len(weights)
        if any(ctx.needs_input_grad[4:]):
            of_tables = plan.tables.give(dz, keys, ctx.periods, num_groups)
        return None, None, of_gamma, of_beta, *of_tables


class Lookup(torch.autograd.Function):
    """(ids, table, tables of this one) -> its rows; of several models the ids are those of the whole."""

    @staticmethod
    def forward(ctx: Any, ids: Tensor, weight: Tensor, tables: Tables) -> Tensor:
        ctx.ids, ctx.tables = ids, tables
        ctx.num_groups = 1 if weight.dim() == 2 else len(weight)
        return functional.embedding(ids, weight.view(-1, weight.shape[-1]))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        keys = ctx.ids.reshape(1, -1).to(torch.int32)
        rows = grad.reshape(-1, grad.shape[-1])
        periods = [keys.numel() // ctx.num_groups]
        return None, *ctx.tables.give(rows, keys, periods, ctx.num_groups), None


def can_embed(num_positions: int, num_models: int, size: int, weights: Sequence[Tensor]) -> bool:
    """Tell whether the kernels can rank so many positions, count all elements and hold a row."""
    counts = (num_positions * size, *(weight.numel() for weight in weights))
    is_ours = num_positions % num_models == 0 and num_positions // num_models <= MOST_POSITIONS
    return is_ours and max(counts) < LARGEST and size <= 8192 and num_positions > 0


def _options(plan: Plan, num_tables: int) -> dict[str, Any]:
    return {"TABLES": num_tables, "DROP": plan.p > 0, "ROUNDS": ROUNDS}
