"""Gradients of tables of vectors (words, positions, kinds of token) as rows, for GPUs; and their dense form.

    dW[k] = Σ over positions i that have read row k of g_i            in the order of i, no other row

A step reads some thousands of the 30,000 and more rows of a table. Where our own AdamW updates the table
(`nn.fast.row_adam`), the gradient stays as it was summed, a row at the first rank of each run (`RowGrads`),
and is never written, cleared or read at the table's size.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor, nn

from bermo.nn.fast.late import can_wait
from bermo.nn.fast.rows_kernels import NOBODY, merge_rows, rank_rows, sum_rows

MOST_TABLES = 3
MOST_POSITIONS = 16_384
"""Of one model: each position is compared with each."""
BLOCK, WIDTH, TILE = 16, 128, 32
"""Ranks and columns of a program, and blocks that are joined at a time."""
SPAN = 1024
"""Positions that eight others are compared with at a time."""


class RowGrads(NamedTuple):
    """The gradients of tables of one width by the rows that n positions have read."""

    ranked: Tensor
    """Of each rank its key, its position, the first and the last rank of its run: (4, tables, n)."""
    rows: Tensor
    """At the first rank of each run the gradient of its row, (tables, n, D); all others are not defined."""
    norms: Tensor
    """At the first rank of each run the norms of parts of its row, else 0: (parts, tables, n)."""


class Tables:
    """Tables that are read together, at the same positions, and the gradients of their rows in this step."""

    def __init__(self, weights: Sequence[nn.Parameter], paddings: Sequence[int | None]) -> None:
        """Each of (rows, D), or (models, rows, D); the row of a padding gets no gradient."""
        assert len(weights) <= MOST_TABLES
        self.weights = list(weights)
        self.paddings = [-1 if padding is None else padding for padding in paddings]
        sizes = [weight.numel() // weight.shape[-1] for weight in weights]
        self.offsets = list(accumulate(sizes, initial=0))[:-1]
        # Of a row that was read the first rank of its run; of any other whatever was left there.
        self.slots = torch.zeros(sum(sizes), dtype=torch.int32, device=weights[0].device)
        self.is_shared = False
        """Whether something else reads a table too, such as a decoder whose matrix is that of the words."""
        self.keeps_rows = False
        """Whether an optimiser takes the rows."""
        self.found: list[RowGrads] = []

    def give(
        self, grads: Tensor, keys: Tensor, periods: Sequence[int], num_groups: int
    ) -> Sequence[Tensor | None]:
        """Leave the gradients of rows (`grads`) to the optimiser, or return those of the tables by torch."""
        if self.keeps_rows and can_wait(*self.weights):
            self.found.append(self.grads(grads, keys, periods, num_groups))
            return [None] * len(self.weights)
        tables = zip(self.weights, keys.long(), self.paddings, strict=True)
        return [
            torch.ops.aten.embedding_dense_backward(
                grads, key, weight.numel() // weight.shape[-1], padding, False
            ).view_as(weight)
            for weight, key, padding in tables
        ]

    def grads(self, grads: Tensor, keys: Tensor, periods: Sequence[int], num_groups: int) -> RowGrads:
        """Sum the gradients (n, D) of what was read by the rows that were read, `keys` (tables, n).

        The positions of each group, of one model, read rows of their own; those rows repeat with a period.
        """
        num_tables, num = keys.shape
        size = grads.shape[-1]
        group = num // num_groups
        ranked = torch.empty(4, num_tables, num, dtype=torch.int32, device=keys.device)
        rows = torch.empty(num_tables, num, size, dtype=torch.float32, device=keys.device)
        width = min(WIDTH, triton.next_power_of_2(size))
        norms = rows.new_empty(triton.cdiv(size, width), num_tables, num)
        rank_rows[(triton.cdiv(group, 8), num_tables, num_groups)](
            keys,
            ranked,
            self.slots,
            group,
            *in_threes(periods),
            *in_threes(self.paddings),
            *in_threes(self.offsets),
            BLOCK=8,
            SPAN=SPAN,
            num_warps=8,
        )
        options = {"D": size, "WIDTH": width, "BLOCK": BLOCK, "num_warps": 4}
        columns = triton.cdiv(size, width)
        sum_rows[(triton.cdiv(num, BLOCK), num_tables, columns)](grads, ranked, rows, norms, num, **options)
        if num > BLOCK:
            merge_rows[((num - 1) // BLOCK, num_tables, columns)](
                ranked, rows, norms, num, TILE=TILE, **options
            )
        return RowGrads(ranked, rows, norms)

    def dense(self, found: RowGrads) -> list[Tensor]:
        """Return the gradients as tables."""
        grads = []
        for index, weight in enumerate(self.weights):
            keys, _, firsts, _ = found.ranked[:, index].unbind()
            is_first = firsts == torch.arange(len(keys), device=keys.device)
            is_row = is_first & (keys < NOBODY.value)
            table = weight.new_zeros(weight.numel() // weight.shape[-1], weight.shape[-1])
            # A row is given once, and zeros else, whose order does not matter.
            given = torch.where(is_row[:, None], found.rows[index], 0.0)
            table.index_add_(0, torch.where(is_row, keys, 0), given)
            grads.append(table.view_as(weight))
        return grads

    @torch.no_grad()
    def spread_(self) -> None:
        """Give the tables their gradients as autograd would have done."""
        for found in self.found:
            for weight, grad in zip(self.weights, self.dense(found), strict=True):
                weight.grad = grad if weight.grad is None else weight.grad + grad
        self.found.clear()


def in_threes(values: Sequence[Any]) -> list[Any]:
    """As many values as kernels have arguments for; the last one again for tables that are not there."""
    return [values[min(index, len(values) - 1)] for index in range(MOST_TABLES)]
