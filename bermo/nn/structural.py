"""Structural probes (Hewitt and Manning 2019): is a tree in the geometry of a layer?

    distance   d_ij = ‖B (h_i − h_j)‖²     loss: mean over sentences of Σ_ij |d_ij − tree distance| / T²
    depth      p_i = ‖B h_i‖²              loss: mean over sentences of Σ_i |p_i − tree depth| / T

One B of a low rank for each layer, all trained together, each exactly as if alone; of each the weights with
the least loss on the dev part are kept. A rate that falls to 0 needs 8 epochs for what a constant one, halved
where dev gets no better, needs 20 for. Axes: L layers, S sentences, T words, D units, R rank.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

Target = Literal["distance", "depth"]
LEAST_STEPS = 40
"""Steps between two evaluations on the dev part, where an epoch has fewer."""
START = 0.05
"""Weights begin between −START and START."""


@dataclass(frozen=True, kw_only=True)
class TreeBatch:
    """Sentences of like length: vectors (L, S, T, D), which words there are, and what is to be found."""

    x_LSTD: Tensor
    is_word_ST: Tensor
    distances_STT: Tensor
    depths_ST: Tensor


@dataclass(frozen=True, kw_only=True)
class TreeSettings:
    """How structural probes are trained: the rate falls linearly to 0 over the epochs."""

    rank: int = 64
    rate: float = 3e-3
    epochs: int = 8
    seed: int = 0


class StructuralProbes(nn.Module):
    """One matrix B for each layer, (L, D, R)."""

    def __init__(self, layers: int, units: int, rank: int, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.rand(layers, units, rank, generator=generator)
        self.weight = nn.Parameter((2 * drawn - 1) * START)

    def project(self, x_LSTD: Tensor) -> Tensor:
        """Return B h of every word, (L, S, T, R)."""
        return torch.einsum("lstd,ldr->lstr", x_LSTD.float(), self.weight)

    def distances(self, x_LSTD: Tensor) -> Tensor:
        """Return ‖B (h_i − h_j)‖², (L, S, T, T)."""
        z = self.project(x_LSTD)
        squares = z.square().sum(-1)
        products = z @ z.transpose(-1, -2)
        return (squares[..., :, None] + squares[..., None, :] - 2 * products).clamp(min=0)

    def depths(self, x_LSTD: Tensor) -> Tensor:
        """Return ‖B h‖², (L, S, T)."""
        return self.project(x_LSTD).square().sum(-1)

    def losses(self, batch: TreeBatch, target: Target) -> Tensor:
        """Return the loss of each layer and sentence, (L, S)."""
        is_word = batch.is_word_ST.float()
        counts = is_word.sum(-1)
        if target == "depth":
            gaps = (self.depths(batch.x_LSTD) - batch.depths_ST).abs() * is_word
            return gaps.sum(-1) / counts
        both = is_word[:, :, None] * is_word[:, None, :]
        gaps = (self.distances(batch.x_LSTD) - batch.distances_STT).abs() * both
        return gaps.sum((-1, -2)) / counts.square()


def fit_structural(
    train: Sequence[TreeBatch],
    dev: Sequence[TreeBatch],
    target: Target,
    settings: TreeSettings,
    advance: Callable[[int], None] = lambda epochs: None,
) -> StructuralProbes:
    """Train one probe for each layer on the batches, in an order drawn from the seed."""
    layers, _, _, units = train[0].x_LSTD.shape
    probes = StructuralProbes(layers, units, min(settings.rank, units), settings.seed)
    probes.to(train[0].x_LSTD.device)
    optimizer = torch.optim.Adam(probes.parameters(), lr=settings.rate, fused=True)
    generator = torch.Generator().manual_seed(settings.seed)
    best_L = torch.full((layers,), torch.inf)
    kept = probes.weight.detach().clone()
    repeats = -(-LEAST_STEPS // len(train))
    done, total = 0, settings.epochs * repeats * len(train)
    for _ in range(settings.epochs):
        orders = [torch.randperm(len(train), generator=generator) for _ in range(repeats)]
        for at in torch.cat(orders).tolist():
            optimizer.param_groups[0]["lr"] = settings.rate * (1 - done / total)
            optimizer.zero_grad()
            probes.losses(train[at], target).mean(1).sum().backward()
            optimizer.step()
            done += 1
        dev_L = _mean_loss(probes, dev, target)
        is_better_L = dev_L < best_L
        best_L = torch.where(is_better_L, dev_L, best_L)
        kept[is_better_L] = probes.weight.detach()[is_better_L]
        advance(1)
    probes.weight.data = kept
    return probes


@torch.no_grad()
def _mean_loss(probes: StructuralProbes, batches: Sequence[TreeBatch], target: Target) -> Tensor:
    losses = torch.cat([probes.losses(batch, target) for batch in batches], dim=1)
    return losses.mean(1).cpu()
