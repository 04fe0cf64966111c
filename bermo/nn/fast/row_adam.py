"""AdamW over tables of vectors from the gradients of the rows that were read (`nn.fast.rows`); for GPUs.

    m ← β₁ m + (1 − β₁) d      v ← β₂ v + (1 − β₂) d²      w ← w − η λ w − η m̂ / (√v̂ + ε)

for every row, with d = 0 where a row was not read: its moments decay, and it moves on. The moments and step
numbers are those of a torch.optim.AdamW.
"""

import torch
import triton
from torch import Tensor
from torch.optim import Optimizer

from bermo.nn.fast.adam import Moments
from bermo.nn.fast.kernels import Chunks, addresses
from bermo.nn.fast.rows import Tables
from bermo.nn.fast.rows_kernels import adam_rows

# Rows of a program, and columns at a time.
LENGTH, WIDTH = 2, 256


class RowAdam:
    """Updates tables in place from the gradients of the rows that were read; no tensor may be moved."""

    def __init__(self, tables: Tables, optimizer: Optimizer, num_models: int = 1) -> None:
        """Of several models, along the first axis, each has a clip factor of its own."""
        self.tables, self.parameters, self.num_models = tables, tables.weights, num_models
        self.size = self.parameters[0].shape[-1]
        device = self.parameters[0].device
        self.weights = addresses([weight.detach() for weight in self.parameters])
        self.moments = Moments(optimizer, self.parameters)
        self.chunks = Chunks([w.numel() for w in self.parameters], device, length=LENGTH * self.size)
        self.chunks.check_alignment(self.weights, *self.moments.addresses)
        heights = [weight.shape[-2] for weight in self.parameters]
        self.heights, self.offsets = torch.tensor(
            [heights, tables.offsets], dtype=torch.int32, device=device
        ).unbind()

    def norms(self) -> Tensor:
        """The norms of the gradients before clipping, of each table; one column for each model."""
        (found,) = self.tables.found
        parts, num_tables, num = found.norms.shape
        by_model = found.norms.view(parts, num_tables, self.num_models, num // self.num_models)
        return torch.linalg.vector_norm(by_model, dim=(0, 3))

    def step(self, scales: Tensor, is_real: bool = True) -> None:
        """Update all tables, with gradients times `scales`; without `is_real` only build the kernel."""
        (found,) = self.tables.found
        self.tables.found.clear()
        if is_real:
            self.moments.count_()
        adam_rows[(self.chunks.count if is_real else 0,)](
            self.weights,
            *self.moments.addresses,
            found.ranked,
            found.rows,
            self.tables.slots,
            self.offsets,
            self.heights,
            *self.moments.settings,
            scales,
            *self.chunks.layout,
            found.norms.shape[-1],
            D=self.size,
            EVEN=self.chunks.is_even,
            LENGTH=LENGTH,
            WIDTH=min(WIDTH, triton.next_power_of_2(self.size)),
            num_warps=4,
        )
