"""Which tokens are masked, for a whole batch at once; for a row of the same number the same in every batch.

    tokens -> groups (a token, a word, a phrase, a span of words) -> a random number for each group
    -> the groups with the smallest numbers, until the share is reached
    -> of their tokens 80 % become [MASK], 10 % a random token, 10 % stay

BERT (Devlin et al. 2018) masks tokens, its later version whole words; spans follow SpanBERT (Joshi et al.
2019), with lengths drawn from a geometric distribution of the same mean, 3.8 words, and not cut at 10.
Phrases follow ERNIE (Sun et al. 2019); phrases.py finds them. A row always has K positions, so that shapes
never change: where it has fewer tokens to mask, the positions left over have weight 0.

Axes: B rows, T tokens, K positions.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bermo.data.pretrain.chance import Rows, draw, draw_bits
from bermo.data.pretrain.corpus import Pieces
from bermo.data.pretrain.phrases import Phrases
from bermo.pretrain_spec import Masking

MASKED, CHANGED = 0.8, 0.1
SPAN_WORDS = 3.8
# What random numbers are drawn for.
GROUP, BREAK, FATE, OTHER = 1, 2, 3, 4

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Masked:
    """Rows with positions masked, the true tokens there, and whether a position counts."""

    ids_BT: Ids
    positions_BK: Ids
    targets_BK: Ids
    weights_BK: npt.NDArray[np.float32]
    ranks_BT: Ids | None = None
    """Where tokens are guessed in an order: its place in it, 0 for one that all others read."""


@dataclass(frozen=True)
class Masker:
    """How rows are masked; `is_plain` puts [MASK] on every chosen position, as for ELECTRA's generator."""

    pieces: Pieces
    kind: Masking
    share: float
    seed: int
    is_plain: bool = False
    phrases: Phrases | None = None
    """What "phrase" masks as one thing."""

    def num_positions(self, length: int) -> int:
        """K: the positions of a row of so many tokens."""
        return max(1, round(self.share * length))

    def __call__(self, ids_BT: Ids, rows: Rows) -> Masked:
        """Mask a batch whose rows have these numbers."""
        wanted = self.num_positions(ids_BT.shape[1])
        is_word_BT = ~self.pieces.is_special[ids_BT]
        group_BT = self._groups(ids_BT, rows)
        luck_BT = np.take_along_axis(draw(self.seed, GROUP, rows, ids_BT.shape[1]), group_BT, axis=1)
        # Special tokens come after every word.
        luck_BT[~is_word_BT] = 2.0
        # Stable, so that the tokens of a group stay together and in order.
        order_BK = np.argsort(luck_BT, axis=1, kind="stable")[:, : wanted + 1]
        budget_B = np.maximum(1, np.rint(self.share * is_word_BT.sum(1))).astype(np.int64)
        counts_BK = np.arange(wanted) < np.minimum(budget_B, is_word_BT.sum(1))[:, None]
        if self.kind in ("word", "phrase"):
            counts_BK &= ~_torn(np.take_along_axis(group_BT, order_BK, axis=1), counts_BK)
        positions_BK = order_BK[:, :wanted]
        targets_BK = np.take_along_axis(ids_BT, positions_BK, axis=1)
        masked_BT = ids_BT.copy()
        given_BK = np.where(counts_BK, self._replaced(targets_BK, rows), targets_BK)
        np.put_along_axis(masked_BT, positions_BK, given_BK, axis=1)
        return Masked(masked_BT, positions_BK, targets_BK, counts_BK.astype(np.float32))

    def _groups(self, ids_BT: Ids, rows: Rows) -> Ids:
        """Return for each token the position at which its group starts."""
        position_T = np.arange(ids_BT.shape[1])
        if self.kind == "token":
            return np.broadcast_to(position_T, ids_BT.shape)
        starts_BT = ~self.pieces.is_inside[ids_BT]
        if self.kind == "span":
            luck_BT = draw(self.seed, BREAK, rows, ids_BT.shape[1])
            starts_BT = starts_BT & (luck_BT < 1 / SPAN_WORDS)
        if self.phrases is not None:
            starts_BT = starts_BT & ~self.phrases.are_joined(ids_BT)
        return _group_starts(starts_BT, self.pieces.is_special[ids_BT])

    def _replaced(self, targets_BK: Ids, rows: Rows) -> Ids:
        """Return what the model reads at the positions: [MASK], a random token, or the true one."""
        if self.is_plain:
            return np.full_like(targets_BK, self.pieces.mask)
        fate_BK = draw(self.seed, FATE, rows, targets_BK.shape[1])
        ordinary = np.flatnonzero(~self.pieces.is_special)
        bits_BK = draw_bits(self.seed, OTHER, rows, targets_BK.shape[1])
        other_BK = ordinary[(bits_BK % np.uint64(len(ordinary))).astype(np.int64)]
        changed_BK = np.where(fate_BK < MASKED + CHANGED, other_BK, targets_BK)
        return np.where(fate_BK < MASKED, self.pieces.mask, changed_BK)


def word_starts(pieces: Pieces, ids_BT: Ids) -> Ids:
    """Return for each token the position at which its word starts; −1 for special tokens."""
    is_special_BT = pieces.is_special[ids_BT]
    return np.where(is_special_BT, -1, _group_starts(~pieces.is_inside[ids_BT], is_special_BT))


def _group_starts(starts_BT: npt.NDArray[np.bool_], is_special_BT: npt.NDArray[np.bool_]) -> Ids:
    """Return for each token the last position before it that starts a group; special tokens stand alone."""
    starts_BT = starts_BT | is_special_BT
    starts_BT[:, 1:] |= is_special_BT[:, :-1]
    starts_BT[:, 0] = True
    return np.maximum.accumulate(np.where(starts_BT, np.arange(starts_BT.shape[1]), 0), axis=1)


def _torn(group_BK1: Ids, counts_BK: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """The positions of a word that the budget would cut in two, unless it is the only word of its row."""
    num_B = counts_BK.sum(1)
    last_B = np.take_along_axis(group_BK1, np.maximum(num_B - 1, 0)[:, None], axis=1)
    after_B = np.take_along_axis(group_BK1, num_B[:, None], axis=1)
    is_last_BK = group_BK1[:, :-1] == last_B
    is_only_B = group_BK1[:, :1] == last_B
    return is_last_BK & (last_B == after_B) & ~is_only_B
