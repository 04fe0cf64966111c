"""Q-BERT's groups (Shen et al. 2020): a matrix's rows fall into groups, each with a range of its own.

    step_g = (max − min) / (2^bits − 1),   code = round((w − min) / step_g),   w ≈ min + step_g · code

The paper has 128 groups a matrix, two or three bits for matrices and eight for embeddings, and trains with
them; here trained weights are rounded, so that what is lost is what the export measures.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.intp]
GROUPS = 128


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
    lows = lows.astype(np.float32)
    steps = ((highs - lows) / ((1 << bits) - 1)).astype(np.float32)
    codes = np.rint((weights - lows[groups]) / np.where(steps, steps, 1)[groups])
    return Grouped(lows=lows, steps=steps, codes=codes.clip(0, (1 << bits) - 1).astype(np.uint8))
