"""Padded rows as tensors of torch, on the CPU."""

from collections.abc import Sequence

import torch

from bermo.data.batches import Indices, pad_rows
from bermo.data.features import Features


def collate(features: Features, indices: Indices, widths: Sequence[int] = ()) -> dict[str, torch.Tensor]:
    """Return rows as a model's arguments (`pad_rows`), as tensors that share their memory."""
    return {name: torch.from_numpy(v) for name, v in pad_rows(features, indices, widths=widths).items()}
