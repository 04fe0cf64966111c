"""Distances, depths, spanning trees and correlations against slow and obvious versions."""

from collections import deque
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import spearmanr

from bermo.data.trees import (
    chain_distances,
    mean_over_lengths,
    row_spearman,
    spanning_trees,
    tree_depths,
    tree_distances,
    tree_edges,
)


def draw_tree(count: int, seed: int) -> list[int]:
    """Heads of a random tree, −1 for its root."""
    random = np.random.default_rng(seed)
    order = random.permutation(count)
    heads = [-1] * count
    for place in range(1, count):
        heads[order[place]] = int(order[random.integers(0, place)])
    return heads


def slow_distances(heads: list[int]) -> np.ndarray:
    near: dict[int, set[int]] = {at: set() for at in range(len(heads))}
    for at, head in enumerate(heads):
        if head >= 0:
            near[at].add(head)
            near[head].add(at)
    found = np.zeros((len(heads), len(heads)))
    for start in near:
        seen, queue = {start: 0}, deque([start])
        while queue:
            at = queue.popleft()
            for other in near[at] - seen.keys():
                seen[other] = seen[at] + 1
                queue.append(other)
        found[start] = [seen[at] for at in range(len(heads))]
    return found


@pytest.mark.parametrize("seed", range(5))
def test_distances_and_depths_are_those_of_a_search(seed: int) -> None:
    heads = draw_tree(12, seed)
    distances = slow_distances(heads)
    np.testing.assert_array_equal(tree_distances(heads), distances)
    np.testing.assert_array_equal(tree_depths(heads), distances[heads.index(-1)])
    assert tree_depths([-1]).tolist() == [0]


def test_a_spanning_tree_is_the_least_of_all_trees() -> None:
    random = np.random.default_rng(0)
    kept = [0, 2, 3, 4, 5]
    for _ in range(5):
        drawn = random.random((6, 6))
        distances = drawn + drawn.T
        pairs = list(combinations(kept, 2))
        best = min(
            (edges for edges in combinations(pairs, len(kept) - 1) if _joins(edges, kept)),
            key=lambda edges: sum(distances[edge] for edge in edges),
        )
        assert spanning_trees(distances[None], kept) == [set(best)]
    assert spanning_trees(distances[None], [3]) == [set()]


def _joins(edges: tuple[tuple[int, int], ...], kept: list[int]) -> bool:
    reached = {kept[0]}
    for _ in kept:
        reached |= {end for edge in edges if reached & set(edge) for end in edge}
    return reached == set(kept)


def test_the_spanning_tree_of_true_distances_is_the_tree() -> None:
    heads = draw_tree(15, 3)
    words = list(range(15))
    assert spanning_trees(tree_distances(heads)[None], words) == [tree_edges(heads, words)]
    assert spanning_trees(chain_distances(4)[None], [0, 1, 3]) == [{(0, 1), (1, 3)}]


def test_correlations_are_scipys() -> None:
    random = np.random.default_rng(1)
    first, second = random.random((6, 9)), random.integers(0, 4, (6, 9)).astype(float)
    ours = row_spearman(first, second)
    expected = [spearmanr(a, b).statistic for a, b in zip(first, second, strict=True)]
    np.testing.assert_allclose(ours, expected, atol=1e-12)
    assert np.isnan(row_spearman(np.ones((1, 3)), second[:1, :3])).all()


def test_lengths_count_alike_and_only_from_5_to_50() -> None:
    assert mean_over_lengths({4: [9.0], 5: [1.0, 0.0], 6: [0.0], 51: [7.0]}) == pytest.approx(0.25)
    assert mean_over_lengths({4: [1.0]}) is None


def test_spanning_trees_and_correlations_of_several_layers_are_those_of_each_alone() -> None:
    generator = np.random.default_rng(0)
    drawn = generator.integers(0, 6, (5, 9, 9)).astype(np.float64)
    distances, kept = drawn + drawn.transpose(0, 2, 1), [0, 1, 3, 4, 5, 7, 8]
    together = spanning_trees(distances, kept)
    assert together == [spanning_trees(layer[None], kept)[0] for layer in distances]
    assert all(len(edges) == len(kept) - 1 for edges in together)
    true = chain_distances(9)
    alone = np.stack([row_spearman(layer, true) for layer in distances])
    np.testing.assert_allclose(row_spearman(distances, true), alone)
