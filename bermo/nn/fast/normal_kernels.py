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
    # exp2 and rsqrt are one instruction each; exp and a quotient are several.
    scaled = x * 0.8493218002880191
    raised = tl.exp2(-(scaled * scaled))
    grown = 1.0 + 0.23164189 * tl.abs(x)
    t = tl.rsqrt(grown * grown)
    tail = 0.7107068705 + t * (-0.7265760135 + t * 0.5307027145)
    tail = t * (0.127414796 + t * (-0.142248368 + t * tail)) * raised
    return tl.where(x < 0, tail, 1.0 - tail), 0.3989422804014327 * raised
