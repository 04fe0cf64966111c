"""Vectors of words from those of their tokens, and how much of a teacher's is not explained.

    w_k = mean of h_t over the tokens t of word k
    unexplained = mean over words and units of (W w + b − (v − μ) / σ)²     1 at the start, 0 at best

μ and σ are the mean and the deviation of each unit of the teacher's vectors v: without them a few units that
are large in every vector would be all that is learned. Sums run as products of matrices, in the same order
every time, so that a GPU gives the same bits again.

Axes: L layers, B rows, T tokens, W words, D units, N vectors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

# Of a unit that never changes.
LEAST_DEVIATION = 1e-6


def membership(words_BT: Tensor, num_words: int) -> Tensor:
    """Return whether each token is part of each word, (B, W, T); a word of −1 is none."""
    return words_BT[:, None, :] == torch.arange(num_words, device=words_BT.device)[:, None]


def pool_words(hidden_BTD: Tensor, is_in_BWT: Tensor) -> Tensor:
    """Return the mean vector of each word's tokens, (B, W, D); zeros for a word without tokens."""
    sums_BWD = is_in_BWT.to(hidden_BTD.dtype) @ hidden_BTD
    return sums_BWD / is_in_BWT.sum(-1, keepdim=True).clamp(min=1)


class TeacherMaps(nn.Module):
    """Linear maps from the student's words in some layers, and from its row, to what the teacher has there.

    They are trained with the student and thrown away with the teacher.
    """

    def __init__(self, size: int, teacher_size: int, layers: Sequence[int]) -> None:
        super().__init__()
        self.layers = tuple(layers)
        self.words = nn.ModuleList(nn.Linear(size, teacher_size) for _ in self.layers)
        self.row = nn.Linear(size, teacher_size)

    def forward(self, hidden_LBTD: Sequence[Tensor], words_BT: Tensor) -> list[Tensor]:
        """Return the words of each of the layers, (B, W, D), and last the row, (B, D), of its first token."""
        is_in_BWT = membership(words_BT, words_BT.shape[1])
        layers = zip(self.layers, self.words, strict=True)
        mapped: list[Tensor] = [apply(pool_words(hidden_LBTD[layer], is_in_BWT)) for layer, apply in layers]
        return [*mapped, self.row(hidden_LBTD[-1][:, 0])]


@dataclass(frozen=True)
class Standard:
    """Mean and deviation of each unit of a teacher's vectors, in one layer or of whole rows."""

    mean_D: Tensor
    deviation_D: Tensor

    @classmethod
    def of(cls, vectors_ND: Tensor) -> Self:
        """Measure them on some vectors."""
        vectors_ND = vectors_ND.double()
        deviation_D = vectors_ND.std(0, correction=0).clamp(min=LEAST_DEVIATION)
        return cls(vectors_ND.mean(0).float(), deviation_D.float())

    def unexplained(self, guessed: Tensor, teacher: Tensor) -> Tensor:
        """Return the squared error of each vector, a mean over its units."""
        wanted = (teacher.float() - self.mean_D) / self.deviation_D
        return (guessed.float() - wanted).square().mean(-1)
