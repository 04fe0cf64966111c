"""Phrases of a text: pairs of neighbouring tokens that come together far more often than by chance.

    PMI(a, b) = log( n(a b) · N / (n(a) · n(b)) )     N tokens, n counts; Church and Hanks 1990

Without a chunker, what ERNIE (Sun et al. 2019) calls phrases and entities are runs of words whose neighbours
have a PMI of at least 4 nats and were seen together 10 times or more. The endings of a word belong to it in
any case. A pair never spans two documents, since the special token between them counts in no pair.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bermo.data.pretrain.corpus import Pieces, Tokens

LEAST_PMI = 4.0
LEAST_COUNT = 10
BLOCK = 1 << 22
"""Tokens that are counted at once."""


@dataclass(frozen=True)
class Phrases:
    """The pairs of ids that belong to one phrase, as sorted numbers a · V + b."""

    codes: npt.NDArray[np.int64]
    size: int

    def are_joined(self, ids_BT: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Tell for each token of a row whether it belongs to one phrase with the token before it."""
        joined_BT = np.zeros(ids_BT.shape, dtype=bool)
        if not len(self.codes):
            return joined_BT
        codes = ids_BT[:, :-1] * self.size + ids_BT[:, 1:]
        index = np.minimum(np.searchsorted(self.codes, codes), len(self.codes) - 1)
        joined_BT[:, 1:] = self.codes[index] == codes
        return joined_BT


def find_phrases(tokens: Tokens, pieces: Pieces) -> Phrases:
    """Count the pairs of a text, a block at a time, and keep those of a phrase."""
    singles = np.zeros(pieces.size, dtype=np.int64)
    codes, counts = np.empty(0, np.int64), np.empty(0, np.int64)
    for start in range(0, len(tokens.ids), BLOCK):
        # One token more, so that the pair over the end of the block counts too.
        block = np.asarray(tokens.ids[start : start + BLOCK + 1], dtype=np.int64)
        singles += np.bincount(block[:BLOCK], minlength=pieces.size)
        more, seen = np.unique(_codes(block, pieces), return_counts=True)
        codes, counts = _added(codes, counts, more, seen)
    total = singles[~pieces.is_special].sum()
    first, second = np.divmod(codes, pieces.size)
    chance = singles[first].astype(np.float64) * singles[second]
    pmi = np.log(counts * float(total) / np.maximum(chance, 1))
    return Phrases(codes[(pmi >= LEAST_PMI) & (counts >= LEAST_COUNT)], pieces.size)


def _codes(block: npt.NDArray[np.int64], pieces: Pieces) -> npt.NDArray[np.int64]:
    first, second = block[:-1], block[1:]
    is_pair = ~pieces.is_special[first] & ~pieces.is_special[second]
    return first[is_pair] * pieces.size + second[is_pair]


def _added(
    codes: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
    more: npt.NDArray[np.int64],
    seen: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Add the counts of another block."""
    merged, index = np.unique(np.concatenate([codes, more]), return_inverse=True)
    total = np.zeros(len(merged), dtype=np.int64)
    np.add.at(total, index, np.concatenate([counts, seen]))
    return merged, total
