"""Geometry: closed forms against loops over pairs; noise has none; one word has no angle."""

from itertools import combinations

import pytest
import torch
from torch import Tensor

from bermo.analyse.geometry import (
    MAX_USES,
    Directions,
    _Sums,
    explained_variance,
    mean_cosine,
    measure_geometry,
)
from bermo.analyse.geometry_figures import geometry_section
from bermo.analyse.words import Words, frequent_words, layer_names, pool_words, word_keys
from bermo.vectors import Encoder, stream_vectors
from tests.analyse.conftest import TEXTS


def slow_mean_cosine(vectors: Tensor) -> float:
    pairs = list(combinations(vectors, 2))
    return sum(float(torch.cosine_similarity(a, b, dim=0)) for a, b in pairs) / len(pairs)


def slow_mean_across(texts: list[Tensor]) -> float:
    """The mean over all pairs of words from different texts."""
    pairs = [(a, b) for one, other in combinations(texts, 2) for a in one for b in other]
    return sum(float(torch.cosine_similarity(a, b, dim=0)) for a, b in pairs) / len(pairs)


def test_mean_cosine_is_the_mean_over_all_pairs() -> None:
    vectors = torch.randn(9, 5, generator=torch.Generator().manual_seed(0)) + 0.5
    assert mean_cosine(vectors) == pytest.approx(slow_mean_cosine(vectors), abs=1e-6)
    assert mean_cosine(vectors[:1]) is None


def test_anisotropy_of_isotropic_noise_is_zero() -> None:
    noise = torch.randn(20_000, 64, generator=torch.Generator().manual_seed(0))
    assert mean_cosine(noise) == pytest.approx(0, abs=1e-3)


def test_explained_variance_is_one_for_a_static_word_and_the_first_share_of_the_gram_matrix() -> None:
    static = torch.ones(6, 1) * torch.randn(8, generator=torch.Generator().manual_seed(0))
    assert explained_variance(static) == pytest.approx(1)
    vectors = torch.randn(7, 4, generator=torch.Generator().manual_seed(1)).double()
    values = torch.linalg.eigvalsh(vectors.T @ vectors)
    assert explained_variance(vectors) == pytest.approx(float(values[-1] / values.sum()))


def test_the_whole_measure_equals_loops_over_texts_and_words(mixed: Encoder) -> None:
    keys = word_keys(mixed.tokenizer, TEXTS, 60)
    chosen = frequent_words(mixed.tokenizer, keys, min_texts=5, max_words=100)
    assert "cat" in chosen.values()
    assert "." not in chosen.values()
    geometry = measure_geometry(
        stream_vectors(mixed, TEXTS, with_mix=True, max_length=60), layer_names(mixed), chosen
    )
    assert geometry.layers == ("0", "1", "2", "3", "mix")
    for layer in range(5):
        texts = [_words(mixed, text, layer) for text in TEXTS]
        base = slow_mean_across(texts)
        assert geometry.anisotropy[layer] == pytest.approx(base, abs=1e-5)
        inner = [torch.cosine_similarity(t, t.mean(0), dim=-1).mean() for t in texts]
        expected = float(torch.stack(inner).mean()) - base
        assert geometry.intra_sentence[layer] == pytest.approx(expected, abs=1e-5)
        uses = torch.stack([_first_use(mixed, text, "cat", layer) for text in TEXTS if "cat" in text.split()])
        cat = next(word for word in geometry.words if word.word == "cat")
        assert cat.uses == len(uses)
        assert cat.self_similarity[layer] == pytest.approx(slow_mean_cosine(uses) - base, abs=1e-5)


def _words(encoder: Encoder, text: str, layer: int) -> Tensor:
    """All words of a text read alone; the tiny tokenizer gives a token a word."""
    batch = next(iter(stream_vectors(encoder, [text], with_mix=True, max_length=60)))
    return batch.vectors[layer][0, 1:-1]


def _first_use(encoder: Encoder, text: str, word: str, layer: int) -> Tensor:
    return _words(encoder, text, layer)[text.split().index(word)]


def test_a_word_is_the_mean_of_its_pieces(encoder: Encoder) -> None:
    batch = next(iter(stream_vectors(encoder, [["cat dog", "the"], ["a"]], max_length=60)))
    words = pool_words(batch)
    first = [k for k, row in enumerate(words.rows) if row == 0]
    row = batch.rows.tolist().index(0)
    torch.testing.assert_close(words.vectors[2][first[0]], batch.vectors[2][row, 1:3].mean(0))
    assert len(words.keys[first[0]]) == 2
    assert words.positions == (0, 1, 0)


def test_words_of_the_same_text_do_not_count_as_anisotropy() -> None:
    directions = Directions()
    one, other = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    directions.add(torch.stack([one, one, other, other, other]), torch.tensor([0, 0, 1, 1, 1]), 2)
    assert directions.mean_cosine == pytest.approx(0)


def test_uses_of_a_frequent_word_are_drawn_from_all_texts() -> None:
    sums = _Sums(1, {(7,): "cat"})
    for row in range(400):
        vectors = torch.full((1, 2), float(row))
        sums.add(Words(vectors=(vectors,), rows=(row,), keys=((7,),), positions=(0,)))
    kept = torch.stack(sums.uses[(7,)])[:, 0, 0]
    assert len(kept) == MAX_USES
    assert kept.max() > 200
    assert len(set(kept.tolist())) == MAX_USES


def test_one_word_gets_a_sentence_and_no_number(encoder: Encoder) -> None:
    geometry = measure_geometry(stream_vectors(encoder, ["cat"]), layer_names(encoder), {})
    assert geometry.anisotropy == (None,) * 4
    assert "no angle between texts can be measured" in geometry_section({"tiny": geometry}).text
