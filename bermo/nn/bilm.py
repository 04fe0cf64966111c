"""ELMo's parts (Peters et al. 2018): words from characters, and LSTMs that read a row from both ends.

    characters   x = W · highways(max over time of relu(filters * characters)) + b    (Kim et al. 2016)
    highway      y = g ⊙ relu(W_t x + b_t) + (1 − g) ⊙ x,   g = σ(W_c x + b_c)
    LSTM         i, j, f, o = x W_x + h W_h + b
                 c ← clip(σ(f) ⊙ c + σ(i) ⊙ tanh(j)),   h ← clip(W_p (σ(o) ⊙ tanh(c)))
    skip         from the second layer on, h_l = LSTM(h_{l−1}) + h_{l−1}

The released weights add 1 to f; here that is part of b. Matrices are stored as (inputs, outputs), and those
of both directions, forward first, are one tensor, so that one loop serves both.

Axes: B rows, T words, C characters, P units of one direction, H cells, 2 directions.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bermo.nn.spelling import NUM_CHARACTERS, Words

Filters = Sequence[tuple[int, int]]
"""The width of each kind of filter, in characters, and how many there are."""
CARRY_BIAS = -2.0


class Highway(nn.Module):
    """y = g ⊙ relu(W_t x + b_t) + (1 − g) ⊙ x, with g = σ(W_c x + b_c); the transform comes first."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, 2 * size))
        self.bias = nn.Parameter(torch.empty(2 * size))

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw weights of Glorot's size, and let most of the input through at first."""
        for half in self.weight.chunk(2, dim=1):
            nn.init.xavier_uniform_(half)
        transform, carry = self.bias.chunk(2)
        transform.zero_()
        carry.fill_(CARRY_BIAS)

    def forward(self, x: Tensor) -> Tensor:
        transform, carry = torch.addmm(self.bias, x, self.weight).chunk(2, dim=-1)
        gate = torch.sigmoid(carry)
        return gate * torch.relu(transform) + (1 - gate) * x


class CharacterWords(nn.Module):
    """Vectors of words from their characters."""

    def __init__(self, character_size: int, filters: Filters, num_highways: int, size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(NUM_CHARACTERS, character_size)
        self.filters = nn.ModuleList(nn.Conv1d(character_size, count, width) for width, count in filters)
        total = sum(count for _, count in filters)
        self.highways = nn.ModuleList(Highway(total) for _ in range(num_highways))
        self.projection = nn.Linear(total, size)

    def forward(self, characters_BTC: Tensor) -> Tensor:
        """Return (B, T, P)."""
        vectors = self.embedding(characters_BTC.flatten(0, 1)).transpose(1, 2)
        found = [torch.relu(kind(vectors).amax(-1)) for kind in self.filters]
        words = torch.cat(found, dim=-1)
        for highway in self.highways:
            words = highway(words)
        return self.projection(words).unflatten(0, characters_BTC.shape[:2])


class BothWays(nn.Module):
    """One layer: an LSTM with projection that reads the words of a row forwards, and one backwards."""

    def __init__(self, size: int, cells: int, cell_clip: float, projection_clip: float, skips: bool) -> None:
        super().__init__()
        self.cell_clip, self.projection_clip, self.skips = cell_clip, projection_clip, skips
        self.input = nn.Parameter(torch.empty(2, size, 4 * cells))
        self.recurrent = nn.Parameter(torch.empty(2, size, 4 * cells))
        self.bias = nn.Parameter(torch.empty(2, 4 * cells))
        self.projection = nn.Parameter(torch.empty(2, cells, size))

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw uniform weights of Glorot's size; the forget gates start at 1."""
        for matrix in (self.input, self.recurrent, self.projection):
            for one in matrix:
                nn.init.xavier_uniform_(one)
        self.bias.zero_()
        self.bias.unflatten(1, (4, -1))[:, 2] = 1.0

    def forward(self, hidden_states: Tensor, words: Words, dropout: float) -> Tensor:
        """Return the vectors of tokens, (B, T, 2P), from those of the layer below."""
        below_BTD = words.take(hidden_states)
        read = nn.functional.dropout(below_BTD, dropout, self.training)
        forwards, backwards = read.chunk(2, dim=-1)
        made_2BTP = self._run(torch.stack([forwards, words.reversed(backwards)]))
        above_BTD = torch.cat([made_2BTP[0], words.reversed(made_2BTP[1])], dim=-1)
        return words.spread(above_BTD + below_BTD if self.skips else above_BTD)

    def _run(self, x_2BTP: Tensor) -> Tensor:
        _, num_rows, length, size = x_2BTP.shape
        flat = torch.baddbmm(self.bias[:, None], x_2BTP.flatten(1, 2), self.input)
        steps = flat.unflatten(1, (num_rows, length)).unbind(2)
        hidden = x_2BTP.new_zeros(2, num_rows, size)
        cell = x_2BTP.new_zeros(2, num_rows, self.projection.shape[1])
        made = []
        for gates in steps:
            i, j, f, o = torch.baddbmm(gates, hidden.to(gates.dtype), self.recurrent).chunk(4, dim=-1)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(j)
            cell = cell.clamp(-self.cell_clip, self.cell_clip)
            hidden = torch.bmm(torch.sigmoid(o) * torch.tanh(cell), self.projection)
            hidden = hidden.clamp(-self.projection_clip, self.projection_clip)
            made.append(hidden)
        return torch.stack(made, dim=2)
