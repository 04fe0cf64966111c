"""Matrices of low rank: W ≈ B A with A (rank × inputs) and B (outputs × rank), by singular values.

    W = U S Vᵀ,   A = √S_r V_rᵀ,   B = U_r √S_r      the nearest B A of rank r (Eckart and Young 1936)

A table of embeddings is factorised in the same way: a word's row has `rank` numbers, and one matrix for all
words makes them as wide as the encoder (ALBERT, Lan et al. 2020).
"""

import torch
from torch import Tensor, nn


class FactoredLinear(nn.Module):
    """y = B (A x) + b."""

    def __init__(self, inputs: int, outputs: int, rank: int, has_bias: bool = True) -> None:
        super().__init__()
        self.down = nn.Linear(inputs, rank, bias=False)
        self.up = nn.Linear(rank, outputs, bias=has_bias)

    @property
    def rank(self) -> int:
        return self.down.out_features

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.up(self.down(x))
        return y


class FactoredEmbedding(nn.Module):
    """A table of `rank` numbers a word, and the matrix that makes them as wide as the encoder."""

    def __init__(self, words: int, width: int, rank: int, padding: int | None = None) -> None:
        super().__init__()
        self.table = nn.Embedding(words, rank, padding_idx=padding)
        self.up = nn.Linear(rank, width, bias=False)

    @property
    def rank(self) -> int:
        return self.table.embedding_dim

    @property
    def num_embeddings(self) -> int:
        return self.table.num_embeddings

    @property
    def embedding_dim(self) -> int:
        return self.up.out_features

    @property
    def padding_idx(self) -> int | None:
        return self.table.padding_idx

    @property
    def weight(self) -> Tensor:
        """The whole table, (words, width)."""
        return self.table.weight @ self.up.weight.T

    def forward(self, ids: Tensor) -> Tensor:
        words: Tensor = self.up(self.table(ids))
        return words


@torch.no_grad()
def factors(weight: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Return A (rank, inputs) and B (outputs, rank), whose product is nearest to a matrix."""
    left, sizes, right = torch.linalg.svd(weight.double(), full_matrices=False)
    roots = sizes[:rank].sqrt()
    down, up = roots[:, None] * right[:rank], left[:, :rank] * roots
    return down.to(weight.dtype), up.to(weight.dtype)


def rank_of(rows: int, columns: int, amount: float) -> int | None:
    """Return the rank that is asked for: a number, or under 1 the share of a matrix's numbers that its two
    factors have. None where they would not be fewer than the matrix's own.
    """
    numbers = rows * columns
    rank = int(amount) if amount >= 1 else max(1, int(amount * numbers / (rows + columns)))
    return rank if rank * (rows + columns) < numbers else None
