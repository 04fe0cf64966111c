"""Random numbers that are a function of (seed, row, purpose, column) alone, for a whole batch at once.

    draw(…)_{r,k} = mix(mix(mix(seed) + purpose) + r) + (k + 1)·φ)
    mix = the last step of splitmix64 (Steele et al. 2014)

No state is kept or saved: a row has the same numbers in every batch, in every process and after a restart.
"""

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint64]
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix_bits(values: Bits) -> Bits:
    """Scramble 64-bit numbers so that every bit of the input moves half the bits of the output."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def draw_bits(seed: int, purpose: int, rows: Rows, width: int) -> Bits:
    """Return (rows, width) scrambled 64-bit numbers."""
    key = mix_bits(np.array([seed], dtype=np.uint64) * GOLDEN + GOLDEN)
    key = mix_bits(key + np.uint64(purpose))
    start_B = mix_bits(key + rows.astype(np.uint64) * GOLDEN)
    return mix_bits(start_B[:, None] + np.arange(1, width + 1, dtype=np.uint64) * GOLDEN)


def draw(seed: int, purpose: int, rows: Rows, width: int) -> npt.NDArray[np.float32]:
    """Return (rows, width) numbers in [0, 1), of 24 bits each."""
    bits = draw_bits(seed, purpose, rows, width) >> np.uint64(40)
    return bits.astype(np.float32) * np.float32(2**-24)
