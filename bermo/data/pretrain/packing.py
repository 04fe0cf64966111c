"""Rows of a fixed length cut from a stream of documents, for a whole batch at once.

    stream (masked LM and others) [CLS] the next T − 2 tokens [SEP]   across documents (RoBERTa); no padding
    pairs (NSP, SOP)              [CLS] A [SEP] B [SEP]               of one document, cut at a sentence's end

Next-sentence prediction (BERT) takes B from another document for half of the rows; sentence-order prediction
(ALBERT) swaps A and B; StructBERT does each with a third of the rows, and tells all three apart. A row of
epoch e has the number e · rows + row; cuts, swaps and masks are drawn from seed and number, so order and
content of a training need no saved state.

Axes: B rows, T tokens.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from bermo.data.pretrain.chance import Rows, draw, draw_bits
from bermo.data.pretrain.corpus import Pieces, Tokens
from bermo.data.pretrain.masking import Ids, Masker
from bermo.data.pretrain.neighbours import Neighbours
from bermo.data.pretrain.order import Shuffled
from bermo.data.pretrain.permuted import Permuted, Unordered
from bermo.errors import BermoError

# What random numbers are drawn for.
SHIFT, JITTER, FLIP, STRANGER = 11, 12, 13, 14
MIN_DOCUMENT = 16
"""Tokens of a document; a shorter one makes no pair."""

Arrays = dict[str, npt.NDArray[Any]]
Chooser = Masker | Neighbours | Shuffled | Permuted | Unordered
"""What says which tokens of a row are guessed."""


@dataclass(frozen=True)
class Stream:
    """Rows of T − 2 tokens one after another; each epoch starts at another token."""

    tokens: Tokens
    pieces: Pieces
    length: int
    seed: int

    @property
    def num_rows(self) -> int:
        return len(self.tokens.ids) // (self.length - 2) - 1

    def first(self, rows: Rows) -> Ids:
        """Return where in the stream the first token of each row is."""
        body = self.length - 2
        epoch_B, index_B = np.divmod(rows, self.num_rows)
        shift_B = (draw_bits(self.seed, SHIFT, epoch_B, 1)[:, 0] % np.uint64(body)).astype(np.int64)
        return index_B * body + shift_B

    def cut(self, rows: Rows) -> Arrays:
        """Return the ids of the rows."""
        ids_BT = np.empty((len(rows), self.length), dtype=np.int64)
        ids_BT[:, 0], ids_BT[:, -1] = self.pieces.cls, self.pieces.sep
        ids_BT[:, 1:-1] = self.tokens.ids[self.first(rows)[:, None] + np.arange(self.length - 2)]
        return {"input_ids": ids_BT}


@dataclass(frozen=True)
class _Segments:
    """Where A and B of each row lie in the stream."""

    start_A: Ids
    size_A: Ids
    start_B: Ids
    size_B: Ids


@dataclass(frozen=True)
class Pairs:
    """Rows of two segments, and whether the second is (0) what follows the first or (1) is not.

    Of three kinds ("three"), 1 is what came before the first, and 2 a segment of another document.
    """

    tokens: Tokens
    pieces: Pieces
    length: int
    seed: int
    kind: Literal["nsp", "sop", "three"]
    windows: Arrays = field(init=False)

    def __post_init__(self) -> None:
        body = self.length - 3
        sizes = np.diff(self.tokens.starts) - 1  # without the [SEP] that ends a document
        kept = np.flatnonzero(sizes >= MIN_DOCUMENT)
        if len(kept) < 2:
            raise BermoError(
                f"Sentence pairs need two documents of {MIN_DOCUMENT} tokens or more, for training and for"
                f" --held-out, but one of these parts has {len(kept)}. Put blank lines between documents,"
                " hold more of them out, or train with --objective mlm."
            )
        sizes = sizes[kept]
        counts = np.maximum(1, sizes // body)
        document = np.repeat(np.arange(len(kept)), counts)
        position = np.arange(len(document)) - np.repeat(np.cumsum(counts) - counts, counts)
        windows = {
            "start": self.tokens.starts[kept][document] + position * body,
            "size": np.minimum(sizes, body)[document],
            "slack": np.maximum(0, sizes - counts * body)[document],
            "end": (self.tokens.starts[kept] + sizes)[document],
            "document": document,
        }
        object.__setattr__(self, "windows", windows)

    @property
    def num_rows(self) -> int:
        return len(self.windows["start"])

    def cut(self, rows: Rows) -> Arrays:
        """Return ids, mask, segment ids and pair labels of the rows."""
        index_B = rows % self.num_rows
        begin_B, cut_B, room_B = self._cuts(rows, index_B)
        first = _Segments(begin_B, cut_B - begin_B, cut_B, self._until_last_end(cut_B, room_B))
        luck_B = draw(self.seed, FLIP, rows, 1)[:, 0]
        label_B = (luck_B < 0.5).astype(np.int64)
        if self.kind == "three":
            label_B = np.floor(3 * luck_B).astype(np.int64)
        is_swapped_B = label_B == 1 if self.kind != "nsp" else np.zeros_like(label_B, dtype=bool)
        is_strange_B = (label_B > 0) & ~is_swapped_B
        pair = first
        if is_swapped_B.any():
            swapped = _Segments(first.start_B, first.size_B, first.start_A, first.size_A)
            pair = _chosen(is_swapped_B, swapped, pair)
        if is_strange_B.any():
            pair = _chosen(is_strange_B, self._strange(first, rows, index_B), pair)
        return self._rows(pair) | {"pair_labels": label_B}

    def _ends(self, start_B: Ids, size_B: Ids) -> npt.NDArray[np.bool_]:
        """Tell which of the tokens after `start` end a sentence, (B, T − 3)."""
        position = np.arange(self.length - 3)
        inside = np.minimum(start_B[:, None] + position, len(self.tokens.ids) - 1)
        return self.pieces.is_end[self.tokens.ids[inside]] & (position < size_B[:, None])

    def _cuts(self, rows: Rows, index_B: Ids) -> tuple[Ids, Ids, Ids]:
        """Return where each window begins, where it is cut, and the tokens from there to its end.

        Both are starts of sentences wherever the text has some: a row that began in the middle of one would
        give away which of its segments came first.
        """
        size_B, slack_B = self.windows["size"][index_B], self.windows["slack"][index_B]
        luck = draw(self.seed, JITTER, rows, 2)
        start_B = self.windows["start"][index_B] + (luck[:, 0] * (slack_B + 1)).astype(np.int64)
        is_end = self._ends(start_B, size_B - 1)
        position = np.arange(1, self.length - 2)
        is_early = is_end & (position < size_B[:, None] // 3)
        is_first_B = np.isin(start_B, self.tokens.starts)
        skip_B = np.where(is_early.any(1) & ~is_first_B, is_early.argmax(1) + 1, 0)
        target_B = ((0.4 + 0.3 * luck[:, 1]) * size_B).astype(np.int64)
        is_cut = is_end & (position > skip_B[:, None])
        distance = np.where(is_cut, np.abs(position - target_B[:, None]), self.length)
        cut_B = np.where(is_cut.any(1), distance.argmin(1) + 1, np.maximum(target_B, skip_B + 1))
        return start_B + skip_B, start_B + cut_B, size_B - cut_B

    def _until_last_end(self, start_B: Ids, room_B: Ids) -> Ids:
        """Return the tokens up to the last end of a sentence that there is room for, or all of the room."""
        is_end = self._ends(start_B, room_B)
        last_B = is_end.shape[1] - is_end[:, ::-1].argmax(1)
        return np.where(is_end.any(1), last_B, room_B)

    def _strange(self, pair: _Segments, rows: Rows, index_B: Ids) -> _Segments:
        """Give each A a B from another document, cut out as the true one was."""
        number = np.uint64(self.num_rows)
        other_B = (draw_bits(self.seed, STRANGER, rows, 1)[:, 0] % number).astype(np.int64)
        document = self.windows["document"]
        first_of_next = np.searchsorted(document, document[index_B], side="right") % self.num_rows
        other_B = np.where(document[other_B] == document[index_B], first_of_next, other_B)
        _, cut_B, _ = self._cuts(rows, other_B)
        room_B = np.minimum(self.windows["end"][other_B] - cut_B, self.length - 3 - pair.size_A)
        size_B = self._until_last_end(cut_B, room_B)
        return _Segments(pair.start_A, pair.size_A, cut_B, size_B)

    def _rows(self, pair: _Segments) -> Arrays:
        """Put the two segments of each row into [CLS] A [SEP] B [SEP] and padding."""
        position_T = np.arange(self.length)
        cut_B, end_B = (pair.size_A + 1)[:, None], (pair.size_A + pair.size_B + 2)[:, None]
        is_second = position_T > cut_B
        source = np.where(
            is_second,
            pair.start_B[:, None] + position_T - cut_B - 1,
            pair.start_A[:, None] + position_T - 1,
        )
        ids_BT = self.tokens.ids[np.clip(source, 0, len(self.tokens.ids) - 1)].astype(np.int64)
        ids_BT[:, 0] = self.pieces.cls
        ids_BT[(position_T == cut_B) | (position_T == end_B)] = self.pieces.sep
        is_token = position_T <= end_B
        ids_BT[~is_token] = self.pieces.pad
        segments = (is_second & is_token).astype(np.int64)
        return {"input_ids": ids_BT, "attention_mask": is_token.astype(np.int64), "token_type_ids": segments}


def _chosen(is_first_B: npt.NDArray[np.bool_], one: _Segments, other: _Segments) -> _Segments:
    """Take the segments of one for some rows, and of the other for the rest."""
    return _Segments(*(np.where(is_first_B, a, b) for a, b in zip(astuple(one), astuple(other), strict=True)))


@dataclass(frozen=True)
class PackedBatches:
    """The batches of every epoch: each row once, in an order drawn from seed and epoch; no short batch."""

    source: Stream | Pairs
    masker: Chooser
    batch_size: int
    seed: int

    def epoch(self, epoch: int) -> Sequence[np.ndarray]:
        """Return the numbers of each batch's rows."""
        order = np.random.default_rng([self.seed, epoch]).permutation(self.source.num_rows)
        whole = len(order) // self.batch_size * self.batch_size
        numbers = epoch * self.source.num_rows + order[:whole]
        return list(numbers.reshape(-1, self.batch_size))

    def collate(self, rows: np.ndarray) -> dict[str, torch.Tensor]:
        """Return the rows cut, masked, and as tensors of fixed shapes."""
        arrays = self.source.cut(rows)
        masked = self.masker(arrays["input_ids"], rows)
        arrays |= {
            "input_ids": masked.ids_BT,
            "places": masked.positions_BK,
            "targets": masked.targets_BK,
            "weights": masked.weights_BK,
        }
        if masked.ranks_BT is not None:
            arrays["ranks"] = masked.ranks_BT
        return {name: torch.from_numpy(array) for name, array in arrays.items()}
