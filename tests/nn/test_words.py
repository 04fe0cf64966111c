"""Vectors of words and what of a teacher's they explain, against slow loops."""

import pytest
import torch

from bermo.nn.words import Standard, TeacherMaps, membership, pool_words


def test_a_words_vector_is_the_mean_of_its_tokens() -> None:
    torch.manual_seed(0)
    hidden = torch.randn(2, 5, 3)
    words = torch.tensor([[-1, 1, 1, 3, -1], [-1, 1, 2, 2, 2]])
    pooled = pool_words(hidden, membership(words, 5))
    for row in range(2):
        for word in range(5):
            own = [hidden[row, place] for place in range(5) if words[row, place] == word]
            expected = torch.stack(own).mean(0) if own else torch.zeros(3)
            torch.testing.assert_close(pooled[row, word], expected)


def test_standardised_vectors_have_an_unexplained_share_of_one_by_guessing_their_mean() -> None:
    torch.manual_seed(0)
    vectors = torch.randn(400, 6) * torch.tensor([1.0, 100.0, 0.01, 3.0, 1.0, 0.0]) + 50
    standard = Standard.of(vectors)
    left = standard.unexplained(torch.zeros(400, 6), vectors).mean()
    # A unit that never changes has nothing to explain.
    assert left == pytest.approx(5 / 6, rel=1e-3)
    exact = (vectors - standard.mean_D) / standard.deviation_D
    assert standard.unexplained(exact, vectors).abs().max() < 1e-9


def test_maps_read_the_words_of_their_layers_and_the_first_token_of_the_last() -> None:
    torch.manual_seed(0)
    layers = [torch.randn(2, 4, 3) for _ in range(3)]
    words = torch.tensor([[-1, 1, 1, -1], [-1, 1, 2, -1]])
    maps = TeacherMaps(3, 5, layers=[1, 2])
    first, second, row = maps(layers, words)
    assert first.shape == second.shape == (2, 4, 5)
    torch.testing.assert_close(first[0, 1], maps.words[0](layers[1][0, 1:3].mean(0)))
    torch.testing.assert_close(second[1, 2], maps.words[1](layers[2][1, 2]))
    torch.testing.assert_close(row, maps.row(layers[2][:, 0]))
