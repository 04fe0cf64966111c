"""Rows and masks: what a slow reading of the same rules gives, whatever batch a row is met in."""

from typing import Literal

import numpy as np
import pytest
import torch

from bermo.data.pretrain.chance import draw
from bermo.data.pretrain.corpus import Pieces, Tokens
from bermo.data.pretrain.masking import Masker
from bermo.data.pretrain.packing import PackedBatches, Pairs, Stream
from bermo.errors import BermoError
from bermo.pretrain_spec import Masking

PAD, CLS, SEP, MASK, END, SIZE, LENGTH = 0, 1, 2, 3, 5, 1000, 48


def make_pieces() -> Pieces:
    """Ids 0–3 are special, 5 ends a sentence, multiples of 7 go on with a word."""
    ids = np.arange(SIZE)
    inside = (ids % 7 == 0) & (ids > 5)
    return Pieces(PAD, CLS, SEP, MASK, SIZE, ids < 4, inside, ids == END)


def make_tokens(documents: int = 12, size: int = 150) -> Tokens:
    """Documents of rising length whose sentences have eight tokens."""
    rng = np.random.default_rng(0)
    parts, starts = [], [0]
    for number in range(documents):
        ids = rng.integers(6, SIZE, size + number)
        ids[7::8] = END
        parts.append(np.append(ids, SEP).astype(np.uint16))
        starts.append(starts[-1] + len(parts[-1]))
    return Tokens(np.concatenate(parts), np.array(starts))


PIECES, TOKENS = make_pieces(), make_tokens()


def make_batches(kind: str = "mlm", masking: Masking = "token", seed: int = 1) -> PackedBatches:
    pair: Literal["nsp", "sop"] = "sop" if kind == "sop" else "nsp"
    source = (
        Stream(TOKENS, PIECES, LENGTH, seed) if kind == "mlm" else Pairs(TOKENS, PIECES, LENGTH, seed, pair)
    )
    return PackedBatches(source, Masker(PIECES, masking, 0.15, seed), 4, seed)


@pytest.mark.parametrize("kind", ["mlm", "nsp", "sop"])
@pytest.mark.parametrize("masking", ["token", "word", "span"])
def test_a_row_is_the_same_in_every_batch_and_other_in_every_epoch(kind: str, masking: Masking) -> None:
    batches = make_batches(kind, masking)
    rows = batches.epoch(3)[0]
    whole = batches.collate(rows)
    for place, row in enumerate(rows):
        alone = batches.collate(np.array([row]))
        for name, tensor in alone.items():
            assert torch.equal(tensor[0], whole[name][place]), name
    later = batches.collate(rows + batches.source.num_rows)
    assert not torch.equal(whole["input_ids"], later["input_ids"])
    other = make_batches(kind, masking, seed=2).collate(rows)
    assert not torch.equal(whole["input_ids"], other["input_ids"])


@pytest.mark.parametrize("kind", ["mlm", "nsp"])
def test_an_epoch_holds_each_row_once_in_an_order_of_its_own(kind: str) -> None:
    batches = make_batches(kind)
    rows = np.concatenate(list(batches.epoch(2)))
    number = batches.source.num_rows
    assert len(set(rows % number)) == len(rows) == number // 4 * 4
    assert (rows // number == 2).all()
    assert not np.array_equal(rows - 2 * number, np.concatenate(list(batches.epoch(0))))


def test_a_stream_is_the_text_cut_into_equal_pieces() -> None:
    source = Stream(TOKENS, PIECES, LENGTH, 1)
    ids = source.cut(np.arange(source.num_rows))["input_ids"]
    assert (ids[:, 0] == CLS).all()
    assert (ids[:, -1] == SEP).all()
    text = TOKENS.ids.tolist()
    joined = ids[:, 1:-1].reshape(-1).tolist()
    shift = next(k for k in range(LENGTH) if text[k : k + 200] == joined[:200])
    assert joined == text[shift : shift + len(joined)]


def segments(row: np.ndarray) -> tuple[list[int], list[int]]:
    """Take [CLS] A [SEP] B [SEP] apart."""
    first, second = np.flatnonzero(row == SEP)
    assert row[0] == CLS
    assert (row[second + 1 :] == PAD).all()
    return row[1:first].tolist(), row[first + 1 : second].tolist()


def find(part: list[int]) -> int:
    """Return the document that holds the tokens one after another."""
    text = TOKENS.ids.astype(int)
    for place in np.flatnonzero(text[: len(text) - len(part) + 1] == part[0]):
        if text[place : place + len(part)].tolist() == part:
            return int(np.searchsorted(TOKENS.starts, place, side="right"))
    raise AssertionError("the tokens are not in the text")


@pytest.mark.parametrize("kind", ["nsp", "sop"])
def test_pairs_are_whole_sentences_and_labels_say_what_was_done(kind: str) -> None:
    source = make_batches(kind).source
    arrays = source.cut(np.arange(4 * source.num_rows))
    counts = np.bincount(arrays["pair_labels"])
    assert abs(counts[1] / counts.sum() - 0.5) < 0.15
    for row, label, mask, types in zip(
        arrays["input_ids"],
        arrays["pair_labels"],
        arrays["attention_mask"],
        arrays["token_type_ids"],
        strict=True,
    ):
        first, second = segments(row)
        assert mask.sum() == len(first) + len(second) + 3
        assert types.tolist() == [0] * (len(first) + 2) + [1] * (len(second) + 1) + [0] * (
            LENGTH - mask.sum()
        )
        assert first[-1] == second[-1] == END
        if not label:
            find(first + second)
        elif kind == "sop":
            find(second + first)
        else:
            assert find(first) != find(second)


@pytest.mark.parametrize("masking", ["token", "word", "span"])
def test_masks_take_their_share_and_only_ordinary_tokens(masking: Masking) -> None:
    batches = make_batches("nsp", masking)
    rows = np.arange(200)
    true = batches.source.cut(rows)["input_ids"]
    masked = batches.masker(true, rows)
    counts = masked.weights_BK > 0
    real = (~PIECES.is_special[true]).sum(1)
    assert (counts.sum(1) <= np.rint(0.15 * real)).all()
    assert counts.sum() > 0.85 * np.rint(0.15 * real).sum()
    assert np.array_equal(np.take_along_axis(true, masked.positions_BK, 1), masked.targets_BK)
    assert not PIECES.is_special[masked.targets_BK[counts]].any()
    changed = masked.ids_BT != true
    chosen = np.zeros_like(changed)
    np.put_along_axis(chosen, masked.positions_BK, counts, 1)
    assert not (changed & ~chosen).any()
    given = np.take_along_axis(masked.ids_BT, masked.positions_BK, 1)[counts]
    targets = masked.targets_BK[counts]
    shares = [
        (given == MASK).mean(),
        ((given != MASK) & (given != targets)).mean(),
        (given == targets).mean(),
    ]
    np.testing.assert_allclose(shares, [0.8, 0.1, 0.1], atol=0.05)
    assert len({tuple(sorted(row)) for row in masked.positions_BK}) > 150


def test_words_are_masked_whole_and_spans_are_runs_of_words() -> None:
    rows = np.arange(100)
    true = make_batches().source.cut(rows)["input_ids"]
    inside = PIECES.is_inside[true]
    runs = {}
    for kind in ("word", "span", "token"):
        masked = Masker(PIECES, kind, 0.15, 1)(true, rows)  # type: ignore[arg-type]
        chosen = np.zeros(true.shape, dtype=bool)
        np.put_along_axis(chosen, masked.positions_BK, masked.weights_BK > 0, 1)
        runs[kind] = (chosen[:, 1:] & chosen[:, :-1]).sum() / chosen.sum()
        if kind == "word":
            assert (chosen[:, 1:] == chosen[:, :-1])[inside[:, 1:]].mean() > 0.99
    assert runs["span"] > 0.55 > 0.35 > runs["word"] > runs["token"]


def test_numbers_are_even_and_independent_of_their_neighbours() -> None:
    numbers = draw(1, 2, np.arange(1000), 64)
    assert abs(numbers.mean() - 0.5) < 0.005
    assert abs(np.corrcoef(numbers[:-1].ravel(), numbers[1:].ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(numbers[:, :-1].ravel(), numbers[:, 1:].ravel())[0, 1]) < 0.02
    assert len(np.unique(numbers)) > 0.99 * numbers.size


def test_one_document_makes_no_pairs() -> None:
    with pytest.raises(BermoError, match="need two documents"):
        Pairs(make_tokens(1), PIECES, LENGTH, 1, "nsp")
