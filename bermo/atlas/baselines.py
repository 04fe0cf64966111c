"""Classifiers that no encoder is needed for, fitted to the same rows: what a compressed model has to beat.

    tf-idf   words and pairs of words, weighted by tf-idf, then logistic regression
    static   the mean of the encoder's own word vectors, before its first layer, then logistic regression

Both are arrays in a folder; what is measured is what was read back from there.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from bermo.atlas import published
from bermo.atlas.loyalty import Probabilities
from bermo.atlas.steps import Published
from bermo.data.rows import TextRows
from bermo.data.scoring import softmax
from bermo.encoders.backbone import load_encoder, load_tokenizer
from bermo.errors import BermoError
from bermo.files import whole_folder, write_text

Array = npt.NDArray[np.floating]
ARRAYS, WORDS = "arrays.npz", "words.json"
MOST_WORDS = 200_000
ITERATIONS = 1000


class Answers(Protocol):
    """Rows of texts in, the probability of every class out."""

    def __call__(self, rows: TextRows) -> Probabilities: ...


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A classifier that is fitted into a folder and read from there."""

    name: str
    summary: str
    fit: Callable[[TextRows, Sequence[str], str, Path], None]
    """Rows, the order of the classes, the name of the encoder, the folder."""
    read: Callable[[Path, str], Answers]
    published: tuple[Published, ...]


def fit_baseline(kind: Baseline, rows: TextRows, labels: Sequence[str], encoder: str, out: Path) -> None:
    """Fit a baseline into a folder, unless that is done."""
    if find_spec("sklearn") is None:
        raise BermoError(f"{kind.name} needs scikit-learn: pip install scikit-learn")
    if not out.exists():
        with whole_folder(out) as folder:
            kind.fit(rows, labels, encoder, folder)


def num_bytes(folder: Path) -> int:
    """The size of a baseline's files."""
    return sum(path.stat().st_size for path in folder.iterdir())


def num_parameters(folder: Path) -> int:
    """How many numbers a baseline stores."""
    with np.load(folder / ARRAYS, allow_pickle=False) as arrays:
        return sum(int(arrays[name].size) for name in arrays)


def _fit_tf_idf(rows: TextRows, labels: Sequence[str], encoder: str, folder: Path) -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer

    counts = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, max_features=MOST_WORDS)
    weights, bias = _regress(counts.fit_transform(_joined(rows)), _classes(rows, labels))
    words = {word: int(index) for word, index in counts.vocabulary_.items()}
    write_text(folder / WORDS, json.dumps(words, ensure_ascii=False))
    np.savez(folder / ARRAYS, idf=counts.idf_.astype(np.float32), weights=weights, bias=bias)


def _read_tf_idf(folder: Path, encoder: str) -> Answers:
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = json.loads((folder / WORDS).read_text(encoding="utf-8"))
    counts = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, vocabulary=words)
    with np.load(folder / ARRAYS, allow_pickle=False) as arrays:
        counts.idf_, weights, bias = arrays["idf"], arrays["weights"], arrays["bias"]
    return lambda rows: softmax(counts.transform(_joined(rows)) @ weights.T + bias)


def _fit_static(rows: TextRows, labels: Sequence[str], encoder: str, folder: Path) -> None:
    words = cast(nn.Embedding, load_encoder(encoder).encoder.get_input_embeddings())
    vectors = words.weight.detach().numpy()
    features_NF = _means(rows, vectors, load_tokenizer(encoder))
    center, scale = features_NF.mean(0), features_NF.std(0) + 1e-6
    weights, bias = _regress((features_NF - center) / scale, _classes(rows, labels))
    # The features are read as they are: what they were scaled by goes into the weights.
    weights = weights / scale
    np.savez(folder / ARRAYS, vectors=vectors, weights=weights, bias=bias - weights @ center)


def _read_static(folder: Path, encoder: str) -> Answers:
    tokenizer = load_tokenizer(encoder)
    with np.load(folder / ARRAYS, allow_pickle=False) as arrays:
        vectors, weights, bias = arrays["vectors"], arrays["weights"], arrays["bias"]
    return lambda rows: softmax(_means(rows, vectors, tokenizer) @ weights.T + bias)


def _means(rows: TextRows, vectors: Array, tokenizer: Any) -> Array:
    """Return the mean word vector of each text; of a pair both and how far they are apart."""
    first = _mean(rows.first, vectors, tokenizer)
    if rows.second is None:
        return first
    second = _mean(rows.second, vectors, tokenizer)
    return np.concatenate([first, second, np.abs(first - second)], axis=1)


def _mean(texts: Sequence[str], vectors: Array, tokenizer: Any) -> Array:
    ids = tokenizer(list(texts), add_special_tokens=False, truncation=True)["input_ids"]
    starts = np.cumsum([0, *map(len, ids[:-1])])
    flat = torch.tensor([number for row in ids for number in row], dtype=torch.long)
    table = torch.from_numpy(vectors)
    means = nn.functional.embedding_bag(flat, table, torch.from_numpy(starts), mode="mean")
    array: Array = means.numpy()
    return array


def _regress(features: Any, classes: npt.NDArray[np.integer]) -> tuple[Array, Array]:
    """Fit a logistic regression; return weights and biases with a row for each class."""
    from sklearn.linear_model import LogisticRegression

    fitted = LogisticRegression(max_iter=ITERATIONS).fit(features, classes)
    weights, bias = fitted.coef_.astype(np.float32), fitted.intercept_.astype(np.float32)
    if len(weights) == 1:
        # Of two classes scikit-learn keeps the second one's.
        weights, bias = np.concatenate([0 * weights, weights]), np.concatenate([0 * bias, bias])
    return weights, bias


def _classes(rows: TextRows, labels: Sequence[str]) -> npt.NDArray[np.integer]:
    places = {label: index for index, label in enumerate(labels)}
    return np.array([places[str(label)] for label in rows.labels or ()])


def _joined(rows: TextRows) -> list[str]:
    if rows.second is None:
        return list(rows.first)
    return [f"{first} {second}" for first, second in zip(rows.first, rows.second, strict=True)]


BASELINES: Mapping[str, Baseline] = {
    kind.name: kind
    for kind in (
        Baseline(
            name="tf-idf",
            summary="words and pairs of words, then logistic regression",
            fit=_fit_tf_idf,
            read=_read_tf_idf,
            published=(published.TF_IDF,),
        ),
        Baseline(
            name="static",
            summary="the mean of the encoder's word vectors, then logistic regression",
            fit=_fit_static,
            read=_read_static,
            published=(published.STATIC,),
        ),
    )
}
