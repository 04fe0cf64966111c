"""Words put out of order, to be restored: StructBERT's word structure (Wang et al. 2019).

    the cat [MASK] on the old mat   ->   the cat [MASK] old on the mat,   and "on the old" is guessed there

Some runs of three tokens that are neither masked nor special are shuffled, each in one of the five orders
that are not its own, and the true token of each of their places is guessed by the same softmax as the masked
ones. Runs start at every third token, from a place drawn for each row, so that no two overlap.

Axes: B rows, T tokens, K masked places, N runs.
"""

from dataclasses import dataclass

import numpy as np

from bermo.data.pretrain.chance import Rows, draw, draw_bits
from bermo.data.pretrain.masking import Ids, Masked, Masker

SHARE = 0.05
"""Of the tokens of a row that are shuffled."""
RUN = 3
ORDERS = np.array([(0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
# What random numbers are drawn for.
WHICH, FROM, ORDER = 21, 22, 23


@dataclass(frozen=True)
class Shuffled:
    """Masks rows, then shuffles runs of three tokens that are left."""

    masker: Masker

    def __call__(self, ids_BT: Ids, rows: Rows) -> Masked:
        """Return the rows with the places and true tokens of both."""
        masked = self.masker(ids_BT, rows)
        starts_BN, counts_BN = self._runs(ids_BT, masked, rows)
        places_BNR = starts_BN[..., None] + np.arange(RUN)
        bits_BN = draw_bits(self.masker.seed, ORDER, rows, starts_BN.shape[1])
        order_BNR = ORDERS[(bits_BN % np.uint64(len(ORDERS))).astype(np.int64)]
        order_BNR = np.where(counts_BN[..., None], order_BNR, np.arange(RUN))
        read_B = (starts_BN[..., None] + order_BNR).reshape(len(rows), -1)
        places_B = places_BNR.reshape(len(rows), -1)
        given = np.take_along_axis(masked.ids_BT, read_B, axis=1)
        shuffled_BT = masked.ids_BT.copy()
        for column in range(places_B.shape[1]):
            # A run that does not count may stand where another one does, and must not undo it.
            is_real = counts_BN[:, column // RUN]
            shuffled_BT[is_real, places_B[is_real, column]] = given[is_real, column]
        return Masked(
            shuffled_BT,
            np.concatenate([masked.positions_BK, places_B], axis=1),
            np.concatenate([masked.targets_BK, np.take_along_axis(ids_BT, places_B, axis=1)], axis=1),
            np.concatenate([masked.weights_BK, np.repeat(counts_BN, RUN, axis=1).astype(np.float32)], axis=1),
        )

    def _runs(self, ids_BT: Ids, masked: Masked, rows: Rows) -> tuple[Ids, np.ndarray]:
        """Return where the runs of each row start, and which of them are any."""
        length = ids_BT.shape[1]
        is_free_BT = ~self.masker.pieces.is_special[ids_BT]
        hidden = np.zeros_like(is_free_BT)
        np.put_along_axis(hidden, masked.positions_BK, True, axis=1)
        is_free_BT &= ~hidden
        is_run = is_free_BT[:, :-2] & is_free_BT[:, 1:-1] & is_free_BT[:, 2:]
        seed = self.masker.seed
        from_B = (draw_bits(seed, FROM, rows, 1)[:, 0] % np.uint64(RUN)).astype(np.int64)
        is_run &= np.arange(length - 2) % RUN == from_B[:, None]
        luck = np.where(is_run, draw(seed, WHICH, rows, length - 2), 2.0)
        wanted = max(1, round(SHARE * length / RUN))
        starts_BN = np.argsort(luck, axis=1, kind="stable")[:, :wanted]
        return starts_BN, np.take_along_axis(is_run, starts_BN, axis=1)
