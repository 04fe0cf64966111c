"""Φ and φ of a normal distribution in kernels, from one exponential.

    tail = ½ (a₁ t + … + a₅ t⁵) exp(−x² / 2)      t = 1 / (1 + p |x| / √2)
    Φ(x) = 1 − tail, or tail where x < 0           φ(x) = exp(−x² / 2) / √(2π)

Abramowitz and Stegun 1964, 7.1.26: off by 8e-8 at most, relative to 1.
"""

import triton
import triton.language as tl


@triton.jit
def normal(x):
    """Φ(x) and φ(x), in float32."""
    size = tl.abs(x) * 0.7071067811865476
    t = 1.0 / (1.0 + 0.3275911 * size)
    raised = tl.exp(-size * size)
    tail = 1.421413741 + t * (-1.453152027 + t * 1.061405429)
    tail = 0.5 * t * (0.254829592 + t * (-0.284496736 + t * tail)) * raised
    return tl.where(x < 0, tail, 1.0 - tail), 0.3989422804014327 * raised
