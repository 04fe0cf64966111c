"""Which words a biLM guesses: each from the words before it, and each from the words behind it.

    words         [CLS]  the   ferri ##tin  .   [SEP]
    forwards      the    ferri .            -           guessed at the word before
    backwards     -      -     the          ferri       guessed at the word behind

A word of several pieces is guessed by its first. Special tokens are guessed nowhere, nor is a word whose
beginning the row has cut off; they are read. A row of T tokens has K = 2 (T − 1) guesses, the forward ones
first, of which those that are none have weight 0.

Axes: B rows, T tokens, K guesses.
"""

from dataclasses import dataclass

import numpy as np

from bermo.data.pretrain.chance import Rows
from bermo.data.pretrain.corpus import Pieces
from bermo.data.pretrain.masking import Ids, Masked


@dataclass(frozen=True)
class Neighbours:
    """Leaves rows as they are, and says what is guessed at each word."""

    pieces: Pieces

    def __call__(self, ids_BT: Ids, rows: Rows) -> Masked:
        """Return the rows with the places and the targets of both directions."""
        is_start_BT = self._starts(ids_BT)
        before_BT = _nearest_before(is_start_BT)
        behind_BT = ids_BT.shape[1] - 1 - _nearest_before(is_start_BT[:, ::-1])[:, ::-1]
        is_guessed_BT = is_start_BT & ~self.pieces.is_special[ids_BT] & ~self.pieces.is_inside[ids_BT]
        # The first token has nothing before it, the last one nothing behind it.
        places = np.concatenate([before_BT[:, 1:], behind_BT[:, :-1]], axis=1)
        targets = np.concatenate([ids_BT[:, 1:], ids_BT[:, :-1]], axis=1)
        counts = np.concatenate([is_guessed_BT[:, 1:], is_guessed_BT[:, :-1]], axis=1)
        return Masked(ids_BT, places, targets, counts.astype(np.float32))

    def _starts(self, ids_BT: Ids) -> np.ndarray:
        """Tell which tokens start a word, as the model sees it: special tokens are words of their own."""
        is_special_BT = self.pieces.is_special[ids_BT]
        is_inside_BT = self.pieces.is_inside[ids_BT]
        is_inside_BT[:, 1:] &= ~is_special_BT[:, :-1]
        is_inside_BT[:, 0] = False
        return ~is_inside_BT


def _nearest_before(is_start_BT: np.ndarray) -> Ids:
    """Return for each token the last start of a word before it; 0 for the first token."""
    place_BT = np.where(is_start_BT, np.arange(is_start_BT.shape[1]), 0)
    last_BT = np.maximum.accumulate(place_BT, axis=1)
    return np.concatenate([np.zeros_like(last_BT[:, :1]), last_BT[:, :-1]], axis=1)
