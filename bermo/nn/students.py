"""Students without a Transformer: word vectors, a reader that makes one vector of a text, and a small head.

    bilstm   the last states of one LSTM in each direction, 150 units each     Tang et al. 2019
    mean     the mean of the word vectors
    head     out(dropout(relu(dense(h)))), 200 units; of a pair h = (u, v, u ⊙ v, |u − v|)

Axes: B texts, T tokens, D units of a word vector, H units of a text's vector, C labels.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from bermo.nn.heads import masked_mean

Reading = Literal["bilstm", "mean"]
LSTM_UNITS = 150
HEAD_UNITS = 200
DROPOUT = 0.1
Texts = tuple[Tensor, Tensor]
"""Token ids (B, T), padded with any, and the number of real ones (B,), at least 1."""


class WordMean(nn.Module):
    """The mean of each text's word vectors."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.output_size = width

    def forward(self, words_BTD: Tensor, lengths_B: Tensor) -> Tensor:
        """Return (B, D)."""
        places_T = torch.arange(words_BTD.shape[1], device=words_BTD.device)
        return masked_mean(words_BTD, places_T[None] < lengths_B[:, None])


class WordLSTM(nn.Module):
    """The last state of an LSTM that reads forwards, beside that of one that reads backwards."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, LSTM_UNITS, batch_first=True, bidirectional=True)
        self.output_size = 2 * LSTM_UNITS

    def forward(self, words_BTD: Tensor, lengths_B: Tensor) -> Tensor:
        """Return (B, H)."""
        packed = pack_padded_sequence(words_BTD, lengths_B.cpu(), batch_first=True, enforce_sorted=False)
        _, (last_2BH, _) = self.lstm(packed)
        return torch.cat([last_2BH[0], last_2BH[1]], dim=-1)


class WordStudent(nn.Module):
    """Texts, or the two sides of pairs, to one score per label; the word vectors are trained too."""

    def __init__(self, reading: Reading, vectors_VD: Tensor, num_labels: int, has_pairs: bool) -> None:
        super().__init__()
        width = vectors_VD.shape[1]
        self.words = nn.Embedding.from_pretrained(vectors_VD.clone(), freeze=False)
        self.reader = WordLSTM(width) if reading == "bilstm" else WordMean(width)
        self.dense = nn.Linear(self.reader.output_size * (4 if has_pairs else 1), HEAD_UNITS)
        self.dropout = nn.Dropout(DROPOUT)
        self.out = nn.Linear(HEAD_UNITS, num_labels)

    def forward(self, sides: Sequence[Texts]) -> Tensor:
        """Return (B, C) scores."""
        vectors = [self.reader(self.words(ids_BT), lengths_B) for ids_BT, lengths_B in sides]
        read_BH = vectors[0]
        if len(vectors) == 2:
            u, v = vectors
            read_BH = torch.cat([u, v, u * v, (u - v).abs()], dim=-1)
        return self.out(self.dropout(torch.relu(self.dense(read_BH))))
