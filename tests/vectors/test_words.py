"""Vectors of words: the mean or the first of their pieces, as a loop over tokens finds them."""

import pytest
import torch

from bermo.spec import Pieces
from bermo.vectors import Encoder, load_encoder, stream_vectors
from bermo.vectors.words import word_vectors

SENTENCES = [["unbelievable", "dogs", "slept"], ["a", "cat"], ["Constantinople"] * 3]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return load_encoder("box", device="cpu")


@pytest.mark.parametrize("pieces", ["mean", "first"])
def test_words_are_pooled_as_a_slow_loop_does(encoder: Encoder, pieces: Pieces) -> None:
    found = word_vectors(encoder, SENTENCES, layers=[0, 2], pieces=pieces)
    assert found.starts == (0, 3, 5, 8)
    assert bool(found.is_read_W.all())
    for batch in stream_vectors(encoder, SENTENCES, layers=[0, 2]):
        for at, row in enumerate(batch.rows.tolist()):
            for word in range(len(SENTENCES[row])):
                tokens = [t for t, w in enumerate(batch.word_of[at].tolist()) if w == word]
                for layer, hidden in enumerate(batch.vectors):
                    kept = hidden[at, tokens[:1] if pieces == "first" else tokens].mean(0)
                    ours = found.vectors_LWD[layer, found.starts[row] + word].float()
                    torch.testing.assert_close(ours, kept, atol=5e-3, rtol=2e-3)


def test_words_beyond_the_longest_text_and_without_pieces_are_not_read(encoder: Encoder) -> None:
    sentences = [["a", "a-" * 5000, "cat"], ["a", "\u200b\u0000", "cat"]]
    found = word_vectors(encoder, sentences, layers=[0], max_length=16)
    assert found.is_read_W.tolist() == [True, True, False, True, False, True]
