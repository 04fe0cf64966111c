"""What both halves of a layer between two bottlenecks need (MobileBERT's, Sun et al. 2020), for GPUs.

    v, n, c = x [Wv; Wn; Wc]ᵀ + b      n ← n ⊙ s + t      c ← c ⊙ s' + t'      q, k = c [Wq; Wk]ᵀ + b
    y₀ = (o W₀ᵀ + b₀ + n) ⊙ s₀ + t₀               o: the attention of q, k and v
    yᵢ = (ReLU(yᵢ₋₁ Uᵢᵀ + aᵢ) Wᵢᵀ + bᵢ + yᵢ₋₁) ⊙ sᵢ + tᵢ      for each of a few feed-forward parts
    y = (m ⊙ (yₙ Wᵀ + b) + x) ⊙ s + t             m: dropout

The first line is `nn.fast.bottleneck_open`, the others are `nn.fast.bottleneck_close`; each stands beside its
twin in plain torch. Sums stay in float32 beside the copies that products read. Both write their backward pass
out: matrices of one shape that are neighbours in memory get their gradients from one product, and the
gradients of all vectors are partial sums in one table, added up by one kernel.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
import triton
from torch import Tensor

from bermo.nn.fast.bottleneck_kernels import sum_table
from bermo.nn.fast.dense import _side_by_side
from bermo.nn.fast.shadow import are_side_by_side

WIDTH = 64
"""Columns of a tile."""
MANY = 2048
"""From so many rows on a tile has 32 of them, and 16 before: so most of a GPU has something to do."""

Vectors = Sequence[Tensor]


@dataclass(frozen=True)
class Scaled:
    """What an elementwise scale and shift needs: y = h ⊙ scale + shift."""

    scale: Tensor
    shift: Tensor


@dataclass(frozen=True)
class Linears:
    """Linear layers of one shape, and where the gradient of all their matrices is to be written."""

    weights: Vectors
    biases: Vectors
    target: Tensor | None = None


class Table:
    """Partial sums of gradients of vectors of these sizes: a row for each block of rows of the tensors."""

    def __init__(self, rows: int, sizes: Sequence[int], like: Tensor) -> None:
        self.tile = {"HEIGHT": 32 if rows >= MANY else 16, "WIDTH": WIDTH, "num_warps": 4}
        self.blocks, self.sizes = triton.cdiv(rows, self.tile["HEIGHT"]), list(sizes)
        self.starts = [0, *accumulate(self.sizes)]
        self.parts = like.new_empty((self.blocks, self.starts[-1]), dtype=torch.float32)

    def grid(self, size: int) -> tuple[int, int]:
        return self.blocks, triton.cdiv(size, WIDTH)

    def place(self, index: int) -> dict[str, int]:
        """Where a kernel writes its sums, from one vector on, and the tiles that it works on."""
        return {"at_column": self.starts[index], "COLUMNS": self.starts[-1], **self.tile}

    def sums(self, dtype: torch.dtype) -> tuple[list[Tensor], list[Tensor]]:
        """The sums, by vector, in float32 and in a dtype."""
        columns = self.starts[-1]
        wide = self.parts.new_empty(columns)
        half = self.parts.new_empty(columns, dtype=dtype)
        sum_table[(triton.cdiv(columns, WIDTH),)](
            self.parts, wide, half, self.blocks, COLUMNS=columns, HEIGHT=64, WIDTH=WIDTH, num_warps=4
        )
        return list(wide.split(self.sizes)), list(half.split(self.sizes))


def beside(tensors: Vectors) -> Tensor:
    """Tensors of one shape as one, along the first axis: a view where they are neighbours in memory."""
    return _side_by_side(tensors) if are_side_by_side(tensors) else torch.cat([*tensors])


def weight_grads(grads: Tensor, inputs: Tensor, target: Tensor | None) -> tuple[Tensor, ...]:
    """dYᵢᵀ Xᵢ of (n, rows, size) each, as one product."""
    turned = grads.transpose(1, 2)
    if target is None:
        return torch.bmm(turned, inputs).unbind()
    out = target.view(len(grads), grads.shape[-1], inputs.shape[-1])
    return torch.bmm(turned, inputs, out=out).unbind()
