"""Dropout by 16 random bits an element, from Philox by a seed that lies on the device.

An element is dropped with chance P rounded to a multiple of 2⁻¹⁶, and what is kept grows by the exact inverse
of the chance to be kept. In rows of N chunks of WIDTH columns a draw of four random numbers decides about
eight elements, two neighbours in each of four chunks.
"""

import triton
import triton.language as tl

# Rounds of Philox: the fewest that pass BigCrush (Salmon et al. 2011).
ROUNDS = 7


@triton.jit
def limit_of(P):
    """What 16 random bits are compared with, and by how much a kept element grows."""
    limit = tl.minimum(tl.floor(P * 65536.0 + 0.5), 65535.0)
    return limit.to(tl.uint32) << 16, tl.where(P < 1.0, 65536.0 / (65536.0 - limit), 0.0)


@triton.jit
def _pairs(word, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """The 16 upper bits of each word, and the 16 lower ones of it as the upper ones of a neighbour."""
    return tl.reshape(tl.join(word, word << 16), (HEIGHT, WIDTH))


@triton.jit
def kept_chunks(
    seed, row, limit, N: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, ROUNDS: tl.constexpr
):
    """Which elements of some rows are kept, (HEIGHT, WIDTH) for each of N chunks."""
    DRAWS: tl.constexpr = (N + 3) // 4
    kept = ()
    for k in tl.static_range(DRAWS):
        counter = (row * DRAWS + k)[:, None] * (WIDTH // 2) + tl.arange(0, WIDTH // 2)[None, :]
        drawn = tl.randint4x(tl.load(seed), counter.to(tl.int32), ROUNDS)
        for word in tl.static_range(min(4, N - 4 * k)):
            kept += (_pairs(drawn[word], HEIGHT, WIDTH) >= limit,)
    return kept
