"""Which tokens an XLNet guesses and in which order, for a whole batch at once (Yang et al. 2019).

    spans   runs of n = 1 … 5 whole words, n with probability ∝ 1/n, each within 6 n tokens that are not
            guessed, some of them before the run and the rest behind it; then single tokens, up to a sixth
    order   the guessed tokens in a random order: each is guessed from all tokens that are not, and from the
            guessed ones before it

6 n tokens for n words are mask_alpha 6 and mask_beta 1 of the released code. Special tokens are read and
never guessed. A row of T tokens has K = T / 6 guesses; where it has fewer tokens to guess, those left over
have weight 0. Rows stay as they are: `ranks` say what may be read (encoders/two_streams.py).

Axes: B rows, T tokens, K guesses.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from bermo.data.pretrain.chance import Rows, draw
from bermo.data.pretrain.corpus import Pieces
from bermo.data.pretrain.masking import Ids, Masked, Masker, word_starts

CONTEXT = 6
"""mask_alpha: a word is guessed for so many tokens that are read."""
LONGEST = 5
"""Words of a run, at most."""
_SHARES = (1 / np.arange(1, LONGEST + 1)).cumsum() / (1 / np.arange(1, LONGEST + 1)).sum()
# What random numbers are drawn for.
WORDS, BEFORE, SINGLE, ORDER = 31, 32, 33, 34

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Permuted:
    """Leaves rows as they are, chooses what is guessed, and puts it in an order."""

    pieces: Pieces
    seed: int

    def __call__(self, ids_BT: Ids, rows: Rows) -> Masked:
        """Return the rows with places and targets in the order in which they are guessed, and all ranks."""
        width = max(1, round(ids_BT.shape[1] / CONTEXT))
        is_word_BT = ~self.pieces.is_special[ids_BT]
        goal_B = np.minimum(_goal(is_word_BT), width)
        luck_BT = draw(self.seed, SINGLE, rows, ids_BT.shape[1])
        luck_BT[self._in_spans(ids_BT, goal_B, rows)] = -1.0
        luck_BT[~is_word_BT] = 2.0
        places_BK = np.argsort(luck_BT, axis=1, kind="stable")[:, :width]
        counts_BK = np.arange(width) < goal_B[:, None]
        turn_BK = np.where(counts_BK, draw(self.seed, ORDER, rows, width), 2.0)
        places_BK = np.take_along_axis(places_BK, np.argsort(turn_BK, axis=1, kind="stable"), axis=1)
        ranks_BK = np.where(counts_BK, np.arange(1, width + 1), 0)
        return Masked(
            ids_BT,
            places_BK,
            np.take_along_axis(ids_BT, places_BK, axis=1),
            counts_BK.astype(np.float32),
            _ranks(ids_BT, places_BK, ranks_BK),
        )

    def _in_spans(self, ids_BT: Ids, goal_B: Ids, rows: Rows) -> Flags:
        """Tell which tokens lie in runs of words: no more than the goal."""
        length, row_B = ids_BT.shape[1], np.arange(len(rows))
        first_BT = word_starts(self.pieces, ids_BT)
        is_start_BT = first_BT == np.arange(length)
        starts, bounds = _Places.of(is_start_BT), _Places.of(is_start_BT | (first_BT < 0))
        words_before = np.pad(np.cumsum(first_BT >= 0, axis=1), ((0, 0), (1, 0)))
        turns = length // (CONTEXT + 1) + 1
        words_BN = 1 + np.searchsorted(_SHARES[:-1], draw(self.seed, WORDS, rows, turns), side="right")
        before_BN = (draw(self.seed, BEFORE, rows, turns) * CONTEXT * words_BN).astype(np.int64)
        here_B, left_B = np.zeros_like(goal_B), goal_B
        edges = np.zeros((len(rows), length + 1), dtype=np.int64)
        for words_B, before_B in zip(words_BN.T, before_BN.T, strict=True):
            begin_B = starts.at(starts.number(here_B + before_B))
            end_B = bounds.at(bounds.number(begin_B) + words_B)
            here_B = end_B + CONTEXT * words_B - before_B
            last_B = np.minimum(end_B, begin_B + left_B)
            left_B = left_B - (words_before[row_B, last_B] - words_before[row_B, begin_B])
            edges[row_B, begin_B] += 1
            edges[row_B, last_B] -= 1
        return (np.cumsum(edges[:, :-1], axis=1) > 0) & (first_BT >= 0)


@dataclass(frozen=True)
class Unordered:
    """Chooses the tokens that a masked LM masks, and lets each be guessed from the others' absence alone.

    So held-out text is scored: what is guessed, and from what, is that of a masked LM on the same rows.
    """

    masker: Masker

    def __call__(self, ids_BT: Ids, rows: Rows) -> Masked:
        """Return the rows as they are; all that is guessed has rank 1, and is read by no other token."""
        masked = self.masker(ids_BT, rows)
        ranks_BK = masked.weights_BK.astype(np.int64)
        return replace(masked, ids_BT=ids_BT, ranks_BT=_ranks(ids_BT, masked.positions_BK, ranks_BK))


def _goal(is_word_BT: Flags) -> Ids:
    """Return how many tokens of each row are guessed."""
    num_B = is_word_BT.sum(1)
    return np.minimum(np.maximum(1, np.rint(num_B / CONTEXT).astype(np.int64)), num_B)


def _ranks(ids_BT: Ids, places_BK: Ids, ranks_BK: Ids) -> Ids:
    """Return the rank of each token: 0 for those that are read by all."""
    ranks_BT = np.zeros_like(ids_BT)
    np.put_along_axis(ranks_BT, places_BK, ranks_BK, axis=1)
    return ranks_BT


@dataclass(frozen=True)
class _Places:
    """Some places of each row in their order, then T: each by its number, and the number of the next one."""

    places_BT: Ids
    numbers_BT: Ids

    @classmethod
    def of(cls, is_one_BT: Flags) -> Self:
        length = is_one_BT.shape[1]
        places_BT = np.sort(np.where(is_one_BT, np.arange(length), length), axis=1)
        return cls(places_BT, np.cumsum(is_one_BT, axis=1) - is_one_BT)

    def number(self, place_B: Ids) -> Ids:
        """Return the number of the first of the places from here on; T behind the row."""
        length = self.places_BT.shape[1]
        found_B = self.numbers_BT[np.arange(len(place_B)), np.minimum(place_B, length - 1)]
        return np.where(place_B < length, found_B, length)

    def at(self, number_B: Ids) -> Ids:
        """Return the place of a number; T where there are fewer."""
        length = self.places_BT.shape[1]
        found_B = self.places_BT[np.arange(len(number_B)), np.minimum(number_B, length - 1)]
        return np.where(number_B < length, found_B, length)
