"""The bag of words against scikit-learn's, and what it counts as a word."""

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from bermo.methods.probing.bag import _Bags, _solve_, bag_accuracy, words_of

WORDS = ["cat", "dog", "tree", "house", "runs", "sleeps", "red", "blue", "!", "well-known"]


def texts(count: int, seed: int) -> tuple[list[str], torch.Tensor]:
    """Texts whose class is told by some of their words, but not always."""
    random = np.random.default_rng(seed)
    rows = [" ".join(random.choice(WORDS, 6)) for _ in range(count)]
    classes = [
        int(row.count("cat") + row.count("red") > row.count("dog") + random.integers(0, 2)) for row in rows
    ]
    return rows, torch.tensor(classes)


def test_weights_are_those_of_scikit_learns_logistic_regression() -> None:
    rows, labels = texts(300, 0)
    penalty = 1e-2
    vectorizer = CountVectorizer(tokenizer=words_of, token_pattern=None)
    counts = vectorizer.fit_transform(rows)
    # Ours: mean loss + λ ‖W‖². scikit-learn's: C · sum of losses + ½ ‖w‖², where two classes share one w =
    # W₁ − W₀.
    theirs = LogisticRegression(C=1 / (penalty * len(rows)), tol=1e-8, max_iter=1000).fit(counts, labels)
    bags = _Bags(rows, vectorizer.vocabulary_, "cpu")
    weight = torch.zeros(len(vectorizer.vocabulary_), 2, requires_grad=True)
    bias = torch.zeros(2, requires_grad=True)
    for _ in range(5):
        _solve_(weight, bias, bags, labels, penalty)
    ours = (weight[:, 1] - weight[:, 0]).detach().numpy()
    np.testing.assert_allclose(ours, theirs.coef_[0], atol=2e-3)
    assert float((bias[1] - bias[0]).detach()) == pytest.approx(float(theirs.intercept_[0]), abs=1e-2)


def test_answers_are_as_often_right_as_scikit_learns() -> None:
    parts = [texts(400, seed) for seed in range(3)]
    ours = bag_accuracy([rows for rows, _ in parts], [labels for _, labels in parts], classes=2)
    vectorizer = CountVectorizer(tokenizer=words_of, token_pattern=None)
    theirs = LogisticRegression(C=10.0, max_iter=1000)
    theirs.fit(vectorizer.fit_transform(parts[0][0]), parts[0][1])
    expected = theirs.score(vectorizer.transform(parts[2][0]), parts[2][1])
    assert ours == pytest.approx(expected, abs=0.02)
