"""Q-BERT's groups (Shen et al. 2020): a matrix's rows fall into groups, each with a range of its own.

    step_g = (high − low) / (2^bits − 1),   code = round((w − low) / step_g),   w ≈ low + step_g · code

The paper has 128 groups a matrix, two or three bits for matrices and eight for embeddings, takes the whole
range of a group, and trains with them. Here trained weights are rounded. In few bits a group has the range
of the least squared error, of the whole one and of narrower ones around its middle, since most weights lie
there. What is lost all the same is what the export measures.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.intp]
GROUPS = 128
SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
"""Shares of a group's whole range that are tried."""
WHOLE_BITS = 8
"""Bits from which the whole range is taken: narrower ones gain nothing worth the time."""


@dataclass(frozen=True, kw_only=True)
class Grouped:
    """Weights as whole numbers, with the least value and the step of each group."""

    lows: Floats
    steps: Floats
    codes: Bytes

    def values(self, rows_of: Rows, num_rows: int) -> Floats:
        """Return the weights; `rows_of` has the row of each."""
        groups = group_of(rows_of, num_rows)
        values = self.lows[groups] + self.steps[groups] * self.codes.astype(np.float32)
        return np.asarray(values, dtype=np.float32)


def group_of(rows_of: Rows, num_rows: int) -> Rows:
    """Return the group that rows belong to: neighbours together, as even as can be."""
    return np.asarray(rows_of * min(GROUPS, num_rows) // num_rows)


def group(weights: Floats, rows_of: Rows, num_rows: int, bits: int) -> Grouped:
    """Code a flat array of weights, of which each stands in a row of a matrix."""
    count, groups = min(GROUPS, num_rows), group_of(rows_of, num_rows)
    lows, highs = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(lows, groups, weights)
    np.maximum.at(highs, groups, weights)
    # A group of which nothing is left has no range.
    lows, highs = (np.where(np.isfinite(ends), ends, 0) for ends in (lows, highs))
    middles, halves, most = (lows + highs) / 2, (highs - lows) / 2, (1 << bits) - 1
    lows, steps = np.zeros((2, count), dtype=np.float32)
    least = np.full(count, np.inf)
    for share in SHARES if bits < WHOLE_BITS else SHARES[:1]:
        low = (middles - share * halves).astype(np.float32)
        step = (2 * share * halves / most).astype(np.float32)
        values = low[groups] + step[groups] * _codes(weights, low[groups], step[groups], most)
        error = np.bincount(groups, np.square(values - weights), count)
        lows, steps = np.where(error < least, low, lows), np.where(error < least, step, steps)
        least = np.minimum(error, least)
    codes = _codes(weights, lows[groups], steps[groups], most)
    return Grouped(lows=lows, steps=steps, codes=codes.astype(np.uint8))


def _codes(weights: Floats, lows: Floats, steps: Floats, most: int) -> Floats:
    return np.rint((weights - lows) / np.where(steps, steps, 1)).clip(0, most)
