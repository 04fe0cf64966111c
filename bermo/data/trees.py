"""Trees of words: distances, depths, the spanning tree of predicted distances, and how well it fits.

    distance d(i, j)     edges on the way from word i to word j
    depth                edges from the root
    UUAS                 share of the true edges that are in the minimum spanning tree of predicted distances
    Spearman             of each word's predicted with its true distances, a mean over the sentences of each
                         length from 5 to 50 words, then over the lengths (Hewitt and Manning 2019)

Punctuation has no part in spanning trees, edges and roots, as in the paper. Axes: T words of a sentence.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from bermo.data.conllu import ROOT

Matrix = npt.NDArray[np.float64]
Edge = tuple[int, int]
SHORTEST, LONGEST = 5, 50


def tree_distances(heads: Sequence[int]) -> Matrix:
    """Return the edges between all pairs of words, (T, T)."""
    depth, count = tree_depths(heads), len(heads)
    distances = np.zeros((count, count))
    # From the root downwards: a word is one edge further than its head from all words that came before.
    order = sorted(range(count), key=lambda at: depth[at])
    for place, at in enumerate(order[1:], start=1):
        before = order[:place]
        distances[at, before] = distances[before, at] = distances[heads[at], before] + 1
    return distances


def tree_depths(heads: Sequence[int]) -> npt.NDArray[np.float64]:
    """Return the edges between the root and each word, (T)."""
    depths: dict[int, int] = {ROOT: -1}
    for start in range(len(heads)):
        way = []
        at = start
        while at not in depths:
            way.append(at)
            at = heads[at]
        for passed in reversed(way):
            depths[passed] = depths[heads[passed]] + 1
    return np.array([depths[at] for at in range(len(heads))], dtype=np.float64)


def tree_edges(heads: Sequence[int], kept: Sequence[int]) -> set[Edge]:
    """Return the edges between words that are kept, the smaller number first."""
    words = set(kept)
    pairs = ((min(at, head), max(at, head)) for at, head in enumerate(heads) if head != ROOT)
    return {pair for pair in pairs if words.issuperset(pair)}


def spanning_trees(distances_LTT: Matrix, kept: Sequence[int]) -> list[set[Edge]]:
    """Return the edges of the minimum spanning tree over the kept words (Prim), by each layer's distances."""
    layers, count = np.arange(len(distances_LTT)), len(kept)
    edges: list[set[Edge]] = [set() for _ in layers]
    if count < 2:
        return edges
    words = np.array(kept)
    inside_LKK = distances_LTT[np.ix_(layers, words, words)]
    nearest_LK, source_LK = inside_LKK[:, 0].copy(), np.zeros((len(layers), count), dtype=int)
    is_out_LK = np.ones((len(layers), count), dtype=bool)
    is_out_LK[:, 0] = False
    for _ in range(count - 1):
        new_L = np.where(is_out_LK, nearest_LK, np.inf).argmin(1)
        ends = np.sort(np.stack([words[new_L], words[source_LK[layers, new_L]]]), axis=0)
        for found, one, other in zip(edges, *ends.tolist(), strict=True):
            found.add((one, other))
        is_out_LK[layers, new_L] = False
        added_LK = inside_LKK[layers, new_L]
        is_closer_LK = is_out_LK & (added_LK < nearest_LK)
        nearest_LK = np.where(is_closer_LK, added_LK, nearest_LK)
        source_LK = np.where(is_closer_LK, new_L[:, None], source_LK)
    return edges


def chain_distances(count: int) -> Matrix:
    """Return how far words stand from each other in the sentence: the linear baseline."""
    place = np.arange(count, dtype=np.float64)
    distances: Matrix = np.abs(place[:, None] - place)
    return distances


def row_spearman(first: Matrix, second: Matrix) -> Matrix:
    """Return Spearman's correlation of each row of two matrices; nan where a row is constant.

    The first may be of several layers, (L, N, T), and the second, (N, T), the same for all of them.
    """
    a, b = (_ranks(matrix) for matrix in (first, second))
    a, b = (ranks - ranks.mean(-1, keepdims=True) for ranks in (a, b))
    norms = np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
    with np.errstate(invalid="ignore", divide="ignore"):
        correlations: Matrix = np.where(norms > 0, (a * b).sum(-1) / norms, np.nan)
    return correlations


def _ranks(matrix: Matrix) -> Matrix:
    """Return the rank of each value in its row; equal values share their mean rank."""
    less = (matrix[..., :, None] > matrix[..., None, :]).sum(-1)
    equal = (matrix[..., :, None] == matrix[..., None, :]).sum(-1)
    ranks: Matrix = less + (equal + 1) / 2
    return ranks


def mean_over_lengths(values: Mapping[int, Sequence[float]]) -> float | None:
    """Return the mean over lengths of the means of sentences; lengths outside 5 to 50 do not count."""
    means = [np.mean(of_length) for length, of_length in values.items() if SHORTEST <= length <= LONGEST]
    return float(np.mean(means)) if means else None
