"""Phrases by PMI beside a slow count, and masks that take whole ones."""

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from bermo.data.pretrain import phrases as module
from bermo.data.pretrain.corpus import Pieces, Tokens
from bermo.data.pretrain.masking import Masker
from bermo.data.pretrain.phrases import Phrases, find_phrases

SIZE, NEW, YORK = 400, 50, 60


@pytest.fixture(scope="module")
def pieces() -> Pieces:
    special = np.arange(SIZE) < 5
    inside = np.arange(SIZE) > 390
    end = np.zeros(SIZE, dtype=bool)
    return Pieces(pad=0, cls=2, sep=3, mask=4, size=SIZE, is_special=special, is_inside=inside, is_end=end)


@pytest.fixture(scope="module")
def tokens() -> Tokens:
    """Random words, among them "new york" again and again, and documents' ends."""
    draw = np.random.default_rng(0)
    ids: list[int] = []
    for _ in range(9000):
        ids += [NEW, YORK] if draw.random() < 0.01 else [int(draw.integers(61, SIZE))]
        ids += [3] if draw.random() < 0.01 else []
    return Tokens(np.array(ids, dtype=np.uint16), np.array([0, len(ids)]))


@pytest.mark.parametrize("block", [1 << 22, 1000])
def test_phrases_are_those_of_a_slow_count(
    tokens: Tokens, pieces: Pieces, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK", block)
    monkeypatch.setattr(module, "LEAST_COUNT", 3)
    monkeypatch.setattr(module, "LEAST_PMI", 2.0)
    ids = tokens.ids.tolist()
    singles = Counter(ids)
    pairs = Counter(pair for pair in pairwise(ids) if min(pair) >= 5)
    total = sum(count for index, count in singles.items() if index >= 5)
    expected = {
        a * SIZE + b
        for (a, b), count in pairs.items()
        if count >= 3 and math.log(count * total / (singles[a] * singles[b])) >= 2.0
    }
    found = find_phrases(tokens, pieces)
    assert set(found.codes.tolist()) == expected
    assert NEW * SIZE + YORK in expected
    assert (np.diff(found.codes) > 0).all()


def test_only_what_comes_together_is_a_phrase(tokens: Tokens, pieces: Pieces) -> None:
    found = find_phrases(tokens, pieces)
    assert found.codes.tolist() == [NEW * SIZE + YORK]
    row = np.array([[2, NEW, YORK, NEW, 70, YORK, 3]])
    assert found.are_joined(row).tolist() == [[False, False, True, False, False, False, False]]
    assert not Phrases(np.empty(0, np.int64), SIZE).are_joined(row).any()


def test_a_whole_phrase_is_masked_or_none_of_it(tokens: Tokens, pieces: Pieces) -> None:
    found = find_phrases(tokens, pieces)
    draw = np.random.default_rng(1)
    ids = draw.integers(61, 390, (300, 40))
    ids[:, 0], ids[:, -1] = 2, 3
    ids[:, 11], ids[:, 12], ids[:, 13] = NEW, YORK, 395
    masked = Masker(pieces, "phrase", 0.15, seed=1, phrases=found)(ids, np.arange(300))
    fates = set()
    for row in range(300):
        chosen = set(masked.positions_BK[row][masked.weights_BK[row] > 0])
        # The ending belongs to its word, and so to the phrase.
        fates.add(len(chosen & {11, 12, 13}))
        assert np.array_equal(masked.targets_BK[row], ids[row, masked.positions_BK[row]])
    assert fates == {0, 3}
    share = masked.weights_BK.sum() / (300 * 38)
    assert share == pytest.approx(0.15, abs=0.02)
