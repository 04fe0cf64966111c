"""How well predicted distances and depths fit the trees of sentences (data/trees.py), for all layers at once.

UUAS and the share of roots have intervals over resamples of the sentences. Axes: S sentences, L layers,
T words.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from bermo.data.conllu import ROOT
from bermo.data.intervals import draws_of_groups, share_ends
from bermo.data.trees import Edge, Matrix, mean_over_lengths, row_spearman, spanning_trees, tree_edges


@dataclass(frozen=True, kw_only=True)
class TreeScores:
    """Scores of one layer, or of a baseline: percent, but for Spearman's correlations."""

    uuas: float
    uuas_interval: tuple[float, float]
    distance_spearman: float | None
    """None where no sentence has 5 to 50 words."""
    root: float | None = None
    root_interval: tuple[float, float] | None = None
    depth_spearman: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Tree:
    """A sentence's tree, where its vectors begin, and the words that are no punctuation."""

    words: tuple[str, ...]
    heads: tuple[int, ...]
    kept: tuple[int, ...]
    begin: int
    distances: Matrix
    depths: npt.NDArray[np.float64]

    @cached_property
    def edges(self) -> set[Edge]:
        """The true edges between words that are no punctuation."""
        return tree_edges(self.heads, self.kept)


def right_edges(trees: Sequence[Tree], distances_SLTT: Sequence[Matrix]) -> list[list[int]]:
    """Return how many true edges of each sentence were found by each layer's distances, (L, S)."""
    counts_SL = [
        [len(tree.edges & found) for found in spanning_trees(distances, tree.kept)]
        for tree, distances in zip(trees, distances_SLTT, strict=True)
    ]
    return [list(row) for row in zip(*counts_SL, strict=True)]


def share_found(right: Sequence[int], totals: Sequence[int]) -> tuple[float, tuple[float, float]]:
    drawn = draws_of_groups(len(right)).astype(np.float64)
    shares = (drawn @ np.array(right)) / np.maximum(1, drawn @ np.array(totals))
    share = sum(right) / max(1, sum(totals))
    low, high = share_ends(shares, share, len(right))
    return 100 * share, (100 * low, 100 * high)


def score(
    trees: Sequence[Tree], distances: Sequence[Matrix], depths: Sequence[Matrix] | None = None
) -> TreeScores:
    """Score predicted distances, and depths where there are any, against the trees."""
    deep = None if depths is None else [item[None] for item in depths]
    return score_layers(trees, [item[None] for item in distances], deep)[0]


def score_layers(
    trees: Sequence[Tree], distances_SLTT: Sequence[Matrix], depths_SLT: Sequence[Matrix] | None = None
) -> list[TreeScores]:
    """Score the predictions of all layers, sentence by sentence, against the trees."""
    totals = [len(tree.edges) for tree in trees]
    edges = [share_found(right, totals) for right in right_edges(trees, distances_SLTT)]
    far = [_mean_of_rows(row_spearman(d, t.distances)) for t, d in zip(trees, distances_SLTT, strict=True)]
    found = [
        TreeScores(uuas=uuas, uuas_interval=interval, distance_spearman=_over_lengths(trees, of_layer))
        for (uuas, interval), of_layer in zip(edges, zip(*far, strict=True), strict=True)
    ]
    if depths_SLT is None:
        return found
    deep = [row_spearman(p, t.depths[None]) for t, p in zip(trees, depths_SLT, strict=True)]
    return [
        replace(
            scores,
            root=root[0],
            root_interval=root[1],
            depth_spearman=_over_lengths(trees, [float(values[layer]) for values in deep]),
        )
        for layer, scores in enumerate(found)
        for root in (_roots(trees, [depths[layer] for depths in depths_SLT]),)
    ]


def _mean_of_rows(correlations_LT: Matrix) -> list[float]:
    """Return each layer's mean over the words that have a correlation; nan where none has."""
    return [float(np.nanmean(row)) if not np.isnan(row).all() else math.nan for row in correlations_LT]


def _over_lengths(trees: Sequence[Tree], values: Sequence[float]) -> float | None:
    of_length: dict[int, list[float]] = {}
    for tree, value in zip(trees, values, strict=True):
        if not math.isnan(value):
            of_length.setdefault(len(tree.heads), []).append(value)
    return mean_over_lengths(of_length)


def _roots(trees: Sequence[Tree], depths: Sequence[Matrix]) -> tuple[float, tuple[float, float]]:
    """Return the share of sentences whose least deep word is the root, in percent, and its interval."""
    right = []
    for tree, predicted in zip(trees, depths, strict=True):
        kept = tree.kept or tuple(range(len(tree.heads)))
        right.append(int(tree.heads[min(kept, key=lambda at: predicted[at])] == ROOT))
    return share_found(right, [1] * len(right))
