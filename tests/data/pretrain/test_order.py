"""StructBERT's rows: shuffled runs beside a slow loop, and pairs of three kinds, a third each."""

from itertools import permutations

import numpy as np
import pytest

from bermo.data.pretrain.corpus import Pieces, Tokens
from bermo.data.pretrain.masking import Masker
from bermo.data.pretrain.order import Shuffled
from bermo.data.pretrain.packing import Pairs

LENGTH, SIZE = 64, 200


@pytest.fixture(scope="module")
def pieces() -> Pieces:
    special = np.zeros(SIZE, dtype=bool)
    special[:5] = True
    inside = np.arange(SIZE) % 5 == 4
    is_end = np.arange(SIZE) == 7
    return Pieces(
        pad=0, cls=2, sep=3, mask=4, size=SIZE, is_special=special, is_inside=inside & ~special, is_end=is_end
    )


def rows_of(pieces: Pieces, count: int) -> tuple[np.ndarray, np.ndarray]:
    ids = np.random.default_rng(0).integers(8, SIZE, (count, LENGTH))
    ids[:, 0], ids[:, 50] = pieces.cls, pieces.sep
    ids[::3, 55:] = pieces.pad
    return ids, np.arange(count)


def test_runs_are_shuffled_apart_from_masks_and_their_tokens_are_guessed(pieces: Pieces) -> None:
    ids, rows = rows_of(pieces, 60)
    masker = Masker(pieces, "token", 0.15, seed=3)
    plain, both = masker(ids, rows), Shuffled(masker)(ids, rows)
    count = plain.positions_BK.shape[1]
    assert np.array_equal(both.positions_BK[:, :count], plain.positions_BK)
    assert np.array_equal(both.targets_BK[:, :count], plain.targets_BK)
    orders = []
    for row in range(60):
        expected = plain.ids_BT[row].copy()
        hidden = set(plain.positions_BK[row])
        used: set[int] = set()
        for k in range(count, both.positions_BK.shape[1], 3):
            places = both.positions_BK[row, k : k + 3].tolist()
            if not both.weights_BK[row, k]:
                continue
            assert places == list(range(places[0], places[0] + 3))
            assert not hidden & set(places)
            assert not used & set(places)
            used |= set(places)
            assert not pieces.is_special[ids[row, places]].any()
            assert both.targets_BK[row, k : k + 3].tolist() == ids[row, places].tolist()
            given, true = both.ids_BT[row, places].tolist(), ids[row, places].tolist()
            if len(set(true)) == 3:
                orders.append(tuple(true.index(value) for value in given))
            expected[places] = given
        assert np.array_equal(both.ids_BT[row], expected)
    assert set(orders) == set(permutations(range(3))) - {(0, 1, 2)}


def test_about_a_twentieth_of_the_tokens_is_shuffled_in_every_order_alike(pieces: Pieces) -> None:
    ids, rows = rows_of(pieces, 900)
    both = Shuffled(Masker(pieces, "token", 0.15, seed=1))(ids, rows)
    count = Masker(pieces, "token", 0.15, seed=1).num_positions(LENGTH)
    assert both.weights_BK[:, count:].sum(1).mean() / LENGTH == pytest.approx(0.05, abs=0.01)
    starts = both.positions_BK[:, count::3][both.weights_BK[:, count::3] > 0]
    shares = np.bincount(starts % 3, minlength=3) / len(starts)
    assert shares == pytest.approx([1 / 3] * 3, abs=0.06)


def test_a_row_is_the_same_in_every_batch(pieces: Pieces) -> None:
    ids, rows = rows_of(pieces, 20)
    shuffle = Shuffled(Masker(pieces, "word", 0.15, seed=5))
    whole, part = shuffle(ids, rows), shuffle(ids[7:12], rows[7:12])
    assert np.array_equal(whole.ids_BT[7:12], part.ids_BT)
    assert np.array_equal(whole.positions_BK[7:12], part.positions_BK)


def test_three_kinds_of_pairs_are_a_third_each_and_what_they_are_called(pieces: Pieces) -> None:
    draw = np.random.default_rng(1)
    documents = [np.append(draw.integers(8, SIZE, 90), 3) for _ in range(40)]
    starts = np.cumsum([0, *map(len, documents)])
    tokens = Tokens(np.concatenate(documents), starts)
    pairs = Pairs(tokens, pieces, 32, seed=2, kind="three")
    rows = np.arange(1200)
    cut = pairs.cut(rows)
    shares = np.bincount(cut["pair_labels"], minlength=3) / len(rows)
    assert shares == pytest.approx([1 / 3] * 3, abs=0.05)
    text = tokens.ids.tolist()
    for row in range(60):
        ids, segments = cut["input_ids"][row], cut["token_type_ids"][row]
        real = cut["attention_mask"][row].astype(bool)
        first = ids[real & (segments == 0)][1:-1].tolist()
        second = ids[real & (segments == 1)][:-1].tolist()
        label = int(cut["pair_labels"][row])
        joined = {0: first + second, 1: second + first}.get(label)
        places = [k for k in range(len(text)) if joined and text[k : k + len(joined)] == joined]
        assert bool(places) == (label < 2)
