"""Scores of sentence vectors and of rerankers: how alike pairs are, and which text is found for a query.

    pairs with a number      Spearman and Pearson of the number with cos(a, b), or with a reranker's score
    pairs without a number   each first text is a query, all second texts are searched by cos(a, b)
    nDCG@10                  DCG / best DCG,  DCG = Σ_r relevance_r / log2(r + 1) over the first ten ranks r
    recall@10                share of a query's texts among the first ten; MRR: mean of 1 / first right rank

A query may stand in several rows: then each of its second texts is right. Equal texts are one.

Axes: Q queries, N texts that are searched, D units of a vector.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bermo.data import metrics
from bermo.data.features import Features
from bermo.data.intervals import Interval, bootstrap
from bermo.data.rows import ApartRows, TextRows
from bermo.data.tasks import Kind

Floats = npt.NDArray[np.floating]
DEPTH = 10
"""Ranks that count: what a reader of a page of answers sees."""


def unit(vectors: Floats) -> Floats:
    """Return vectors of length 1; one of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    scaled: Floats = vectors / np.maximum(lengths, 1e-12)
    return scaled


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """What a model makes of pairs: a number for each beside the right one, and the scores of each query."""

    answers: Floats | None = None
    gold: Floats | None = None
    queries: tuple[Mapping[str, float], ...] = ()

    @property
    def values(self) -> dict[str, float]:
        """Every score that the rows allow, as fractions."""
        values: dict[str, float] = {}
        if self.answers is not None and self.gold is not None:
            values["spearman"] = metrics.spearman(self.answers, self.gold)
            values["pearson"] = metrics.pearson(self.answers, self.gold)
        names = self.queries[0] if self.queries else ()
        return values | {name: float(np.mean([row[name] for row in self.queries])) for name in names}

    def interval(self, metric: str) -> Interval:
        """Return the 95 % interval of a score over pairs, or over queries."""
        answers, gold = self.answers, self.gold
        if metric == "spearman" and answers is not None and gold is not None:
            return bootstrap(lambda rows: metrics.spearman(answers[rows], gold[rows]), len(gold))
        scores = np.array([row[metric] for row in self.queries])
        return bootstrap(lambda rows: float(scores[rows].mean()), len(scores))


def rank(features: Features, predictions: Sequence[Floats]) -> Ranked:
    """Judge the vectors of the texts of each row, (texts, D), or a reranker's number for each, (1,)."""
    stacked = np.stack(predictions).astype(np.float64)
    if features.task.kind == "reranker":
        return _rank_within(features, stacked[:, 0])
    vectors = unit(stacked)
    if features.targets is None:
        assert isinstance(features.rows, ApartRows)
        return Ranked(queries=_search(features.rows, vectors[:, 0], vectors[:, 1]))
    cosines = np.sum(vectors[:, 0] * vectors[:, 1], axis=-1)
    return Ranked(answers=cosines, gold=np.asarray(features.targets))


def main_metric(kind: Kind, values: Mapping[str, float]) -> str:
    """Return the metric that rows are scored by: those that cannot be ranked have a correlation."""
    wanted = ("spearman", "ndcg_10") if kind == "embedding" else ("ndcg_10", "spearman")
    return next(name for name in wanted if name in values)


def _search(rows: ApartRows, first_ND: Floats, second_ND: Floats) -> tuple[Mapping[str, float], ...]:
    """Search the second texts of all rows for each different first text."""
    queries, query_of = _distinct([texts[0] for texts in rows.texts])
    found, text_of = _distinct([texts[1] for texts in rows.texts])
    right_of: list[list[int]] = [[] for _ in queries]
    for query, text in zip(query_of, text_of, strict=True):
        right_of[query].append(text)
    results, found_ND = [], second_ND[found]
    for query, right in zip(queries, right_of, strict=True):
        relevance_N = np.zeros(len(found))
        relevance_N[right] = 1
        results.append(_ranked(found_ND @ first_ND[query], relevance_N))
    return tuple(results)


def _rank_within(features: Features, scores: Floats) -> Ranked:
    """Rank the rows of each query that has better and worse ones."""
    assert isinstance(features.rows, TextRows)
    gold = np.asarray(features.targets)
    groups: dict[str, list[int]] = defaultdict(list)
    for index, query in enumerate(features.rows.first):
        groups[query].append(index)
    told_apart = [rows for rows in groups.values() if np.ptp(gold[rows]) > 0]
    queries = tuple(_ranked(scores[rows], gold[rows]) for rows in told_apart)
    return Ranked(answers=scores, gold=gold, queries=queries)


def _ranked(scores: Floats, relevance: Floats) -> dict[str, float]:
    """Return the scores of one query."""
    order = np.argsort(-scores, kind="stable")
    gains, best = relevance[order][:DEPTH], np.sort(relevance)[::-1][:DEPTH]
    discount = 1 / np.log2(np.arange(2, len(gains) + 2))
    is_right = relevance[order] > 0
    rank = int(np.argmax(is_right)) + 1
    return {
        "ndcg_10": float(gains @ discount / (best @ discount)),
        "recall_10": float(is_right[:DEPTH].sum() / is_right.sum()),
        "mrr": 1 / rank,
    }


def _distinct(texts: Sequence[str]) -> tuple[list[int], list[int]]:
    """Return the row of each different text, and the number of each row's text among these."""
    numbers: dict[str, int] = {}
    firsts: list[int] = []
    for row, text in enumerate(texts):
        if text not in numbers:
            numbers[text] = len(firsts)
            firsts.append(row)
    return firsts, [numbers[text] for text in texts]
