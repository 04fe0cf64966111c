"""Baselines answer from their files as scikit-learn's own pipelines do, for texts and for pairs."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bermo.atlas.baselines import BASELINES, fit_baseline, num_parameters
from bermo.data.rows import TextRows
from bermo.encoders.backbone import load_tokenizer

WORDS = ("the good film", "a bad film", "good fun", "no fun", "a dull thing", "the dog and the cat sees")
CLASSES = {2: ("bad", "good"), 3: ("bad", "fair", "good")}


def make_rows(num_classes: int, has_pairs: bool) -> TextRows:
    first = [f"{text} {WORDS[k % 5]}" for k, text in enumerate(WORDS * 5)]
    labels = [CLASSES[num_classes][(k * k + k // 3) % num_classes] for k in range(len(first))]
    return TextRows(first, first[::-1] if has_pairs else None, labels)


@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("has_pairs", [False, True])
def test_tf_idf_answers_as_the_pipeline_does(num_classes: int, has_pairs: bool, tmp_path: Path) -> None:
    rows, labels = make_rows(num_classes, has_pairs), CLASSES[num_classes]
    texts = [f"{a} {b}" for a, b in zip(rows.first, rows.second or [""] * len(rows), strict=True)]
    pipeline = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), LogisticRegression(max_iter=1000)
    ).fit(texts, rows.labels)
    fit_baseline(BASELINES["tf-idf"], rows, labels, "box", tmp_path / "model")
    answers = BASELINES["tf-idf"].read(tmp_path / "model", "box")
    np.testing.assert_allclose(answers(rows), pipeline.predict_proba(texts), atol=1e-5)
    size = len(pipeline[0].vocabulary_)
    assert num_parameters(tmp_path / "model") == size + num_classes * (size + 1)


@pytest.mark.parametrize("has_pairs", [False, True])
def test_static_is_the_mean_of_word_vectors_scaled_and_regressed(has_pairs: bool, tmp_path: Path) -> None:
    rows = make_rows(3, has_pairs)
    fit_baseline(BASELINES["static"], rows, CLASSES[3], "box", tmp_path / "model")
    with np.load(tmp_path / "model" / "arrays.npz") as arrays:
        vectors = arrays["vectors"]
    tokenizer = load_tokenizer("box")

    def mean(texts: list[str]) -> np.ndarray:
        ids = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
        return np.stack([np.mean([vectors[i] for i in row], axis=0) for row in ids])

    features = mean(list(rows.first))
    if rows.second is not None:
        second = mean(list(rows.second))
        features = np.concatenate([features, second, abs(features - second)], axis=1)
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(features, rows.labels)
    answers = BASELINES["static"].read(tmp_path / "model", "box")
    np.testing.assert_allclose(answers(rows), pipeline.predict_proba(features), atol=2e-3)
