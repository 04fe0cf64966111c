"""What an XLNet guesses: runs of whole words, a sixth of the tokens, in an order that says who reads whom."""

import numpy as np
import pytest

from bermo.data.pretrain.chance import draw
from bermo.data.pretrain.corpus import Corpus, load_corpus
from bermo.data.pretrain.masking import Ids, Masker
from bermo.data.pretrain.packing import Stream
from bermo.data.pretrain.permuted import BEFORE, WORDS, Permuted, Unordered
from tests.methods.pretraining.world import make_spec, write_documents

ROWS = np.arange(24)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("text")
    return load_corpus(make_spec(write_documents(folder), folder).text, 64, print)


def cut(corpus: Corpus, length: int = 64) -> Ids:
    return Stream(corpus.train, corpus.pieces, length, seed=1).cut(ROWS)["input_ids"]


def slow_spans(corpus: Corpus, ids: list[int], luck: list[float], before: list[float]) -> set[int]:
    """The released code's walk over one row: words for their context, one run after the other."""
    pieces, length, goal = corpus.pieces, len(ids), round(sum(~corpus.pieces.is_special[ids]) / 6)

    def is_bound(place: int) -> bool:
        special = pieces.is_special[ids[place]] or pieces.is_special[ids[place - 1]]
        return bool(special or not pieces.is_inside[ids[place]])

    shares = [1 / n / sum(1 / m for m in range(1, 6)) for n in range(1, 6)]
    here, found = 0, set[int]()
    for chance, offset in zip(luck, before, strict=True):
        num_words = next((n for n in range(1, 5) if chance < sum(shares[:n])), 5)
        left = int(np.float32(offset) * 6 * num_words)
        begin = here + left
        while begin < length and (pieces.is_special[ids[begin]] or not is_bound(begin)):
            begin += 1
        if begin >= length:
            break
        end = begin
        for _ in range(num_words):
            end += 1
            while end < length and not is_bound(end):
                end += 1
        run = range(begin, min(end, begin + goal - len(found), length))
        found |= {place for place in run if not pieces.is_special[ids[place]]}
        here = end + 6 * num_words - left
    return found


def test_runs_are_those_of_a_walk_over_each_row(corpus: Corpus) -> None:
    ids, permuted = cut(corpus), Permuted(corpus.pieces, seed=3)
    turns = ids.shape[1] // 7 + 1
    luck, before = (draw(3, purpose, ROWS, turns).tolist() for purpose in (WORDS, BEFORE))
    masked = permuted(ids, ROWS)
    for row in ROWS:
        spans = slow_spans(corpus, ids[row].tolist(), luck[row], before[row])
        guessed = set(masked.positions_BK[row][masked.weights_BK[row] > 0].tolist())
        assert spans <= guessed
        assert len(spans) >= len(guessed) / 2


def test_a_sixth_is_guessed_each_once_and_nothing_special(corpus: Corpus) -> None:
    ids = cut(corpus)
    masked = Permuted(corpus.pieces, seed=3)(ids, ROWS)
    assert np.array_equal(masked.ids_BT, ids)
    assert masked.ranks_BT is not None
    for row in ROWS:
        places = masked.positions_BK[row][masked.weights_BK[row] > 0]
        words = np.flatnonzero(~corpus.pieces.is_special[ids[row]])
        assert len(set(places.tolist())) == len(places) == round(len(words) / 6)
        assert set(places.tolist()) <= set(words.tolist())
        assert np.array_equal(masked.targets_BK[row], ids[row][masked.positions_BK[row]])
        # The places stand in their order, and all others have rank 0.
        assert np.array_equal(masked.ranks_BT[row][places], 1 + np.arange(len(places)))
        assert (masked.ranks_BT[row] > 0).sum() == len(places)


def test_the_order_is_any_order(corpus: Corpus) -> None:
    ids = cut(corpus)
    masked = Permuted(corpus.pieces, seed=3)(ids, ROWS)
    rises = np.concatenate([np.diff(row[:8]) > 0 for row in masked.positions_BK])
    assert 0.35 < rises.mean() < 0.65


def test_a_row_has_the_same_guesses_in_every_batch(corpus: Corpus) -> None:
    ids, permuted = cut(corpus), Permuted(corpus.pieces, seed=3)
    whole, part = permuted(ids, ROWS), permuted(ids[5:9], ROWS[5:9])
    assert np.array_equal(whole.positions_BK[5:9], part.positions_BK)
    assert not np.array_equal(whole.positions_BK, Permuted(corpus.pieces, seed=4)(ids, ROWS).positions_BK)


def test_a_row_of_special_tokens_has_no_guess(corpus: Corpus) -> None:
    ids = np.full((2, 16), corpus.pieces.sep)
    ids[1, 3] = np.flatnonzero(~corpus.pieces.is_special)[0]
    masked = Permuted(corpus.pieces, seed=3)(ids, ROWS[:2])
    assert masked.weights_BK.sum(1).tolist() == [0, 1]
    assert masked.positions_BK[1, 0] == 3
    assert masked.ranks_BT is not None
    assert masked.ranks_BT.sum() == 1


def test_held_out_text_is_guessed_where_a_masked_lm_guesses(corpus: Corpus) -> None:
    ids, masker = cut(corpus), Masker(corpus.pieces, "token", 0.15, seed=0)
    masked, scored = masker(ids, ROWS), Unordered(masker)(ids, ROWS)
    assert np.array_equal(masked.positions_BK, scored.positions_BK)
    assert np.array_equal(masked.targets_BK, scored.targets_BK)
    assert np.array_equal(masked.weights_BK, scored.weights_BK)
    assert np.array_equal(scored.ids_BT, ids)
    assert scored.ranks_BT is not None
    assert scored.ranks_BT.max() == 1
    assert np.array_equal(scored.ranks_BT.sum(1), scored.weights_BK.sum(1))
