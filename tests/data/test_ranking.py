"""Scores of sentence vectors and rerankers, beside slow and obvious ones."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bermo.data.load import own_task
from bermo.data.ranking import main_metric, rank
from bermo.data.rows import ApartRows, TextRows


def features(kind: Any, rows: Any, targets: Any = None) -> Any:
    return SimpleNamespace(task=own_task(kind), rows=rows, targets=targets)


def dcg(relevance: list[float]) -> float:
    return sum(gain / math.log2(place + 2) for place, gain in enumerate(relevance[:10]))


def test_pairs_with_numbers_are_scored_by_the_correlation_of_their_cosines() -> None:
    vectors = np.array([[[1, 0], [0, 2]], [[1, 0], [3, 3]], [[1, 0], [5, 0]]], dtype=float)
    rows = ApartRows([("a", "b")] * 3, [0.0, 1.0, 2.0])
    found = rank(features("embedding", rows, np.array([0.0, 1.0, 2.0])), list(vectors))
    assert found.values["spearman"] == pytest.approx(1)
    assert found.answers is not None
    np.testing.assert_allclose(found.answers, [0, math.sqrt(0.5), 1], atol=1e-12)
    assert main_metric("embedding", found.values) == "spearman"


def test_pairs_without_numbers_are_searched_and_a_query_may_have_several_right_texts() -> None:
    rng = np.random.default_rng(0)
    texts = [("q1", "a"), ("q1", "b"), ("q2", "c"), ("q3", "a"), ("q4", "d")]
    vector_of = {name: rng.normal(size=4) for pair in texts for name in pair}
    vectors = [np.stack([vector_of[a], vector_of[b]]) for a, b in texts]
    found = rank(features("embedding", ApartRows(texts)), vectors)
    expected = []
    for query in ("q1", "q2", "q3", "q4"):
        right = {b for a, b in texts if a == query}

        def cosine(name: str, query: str = query) -> float:
            a, b = vector_of[query], vector_of[name]
            return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

        order = sorted("abcd", key=cosine, reverse=True)
        gains = [float(name in right) for name in order]
        expected.append(dcg(gains) / dcg(sorted(gains, reverse=True)))
    assert found.values["ndcg_10"] == pytest.approx(np.mean(expected))
    assert found.values["recall_10"] == 1
    low, high = found.interval("ndcg_10")
    assert low <= found.values["ndcg_10"] <= high


def test_a_reranker_is_scored_within_each_query_that_has_better_and_worse_texts() -> None:
    rows = TextRows(["q", "q", "q", "alone"], ["a", "b", "c", "d"])
    gold = np.array([0.0, 1.0, 0.0, 1.0])
    found = rank(features("reranker", rows, gold), [np.array([x]) for x in (3.0, 2.0, 1.0, 0.0)])
    assert len(found.queries) == 1
    assert found.values["ndcg_10"] == pytest.approx(1 / math.log2(3))
    assert found.values["mrr"] == 0.5
    assert main_metric("reranker", found.values) == "ndcg_10"
    apart = TextRows(["a", "b"], ["c", "d"])
    only = rank(features("reranker", apart, gold[:2]), [np.array([1.0]), np.array([2.0])])
    assert main_metric("reranker", only.values) == "spearman"
