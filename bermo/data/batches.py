"""Which rows make up each batch of an epoch, and rows to padded arrays and back.

    order of epoch e = f(seed, e): shuffle, cut into pools of 50 batches, sort each pool by length, cut into
    batches, shuffle the batches

Legend: B rows of the batch, C choices or texts of a row, T tokens of the longest.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bermo.data.features import Features
from bermo.errors import BermoError

POOL_BATCHES = 50
"""Batches a pool: enough for texts of like length, few enough that an epoch's order stays random."""

SPARE_TOKENS = 32_768
"""Tokens of padding that take a GPU less time than a shape of their own, whose step is captured."""

Indices = npt.NDArray[np.int64]
LABEL_NAMES = ("labels", "start_positions", "end_positions")
"""The parts of a batch that a loss reads, and that a model needs only to compute its loss."""


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """The batches of every epoch, from lengths, seed and epoch alone; each row once an epoch."""

    lengths: npt.NDArray[np.int32]
    batch_size: int
    seed: int
    grouped: bool = True

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise BermoError(f"batch-size must be at least 1, but got {self.batch_size}.")

    def __len__(self) -> int:
        """Return the number of batches an epoch."""
        return -(-len(self.lengths) // self.batch_size)

    def epoch(self, epoch: int) -> list[Indices]:
        """Return the batches of one epoch."""
        rng = np.random.default_rng([self.seed, epoch])
        order = rng.permutation(len(self.lengths))
        if not self.grouped:
            return list(_cut(order, self.batch_size))
        lengths = np.asarray(self.lengths)
        pools = _cut(order, self.batch_size * POOL_BATCHES)
        # Stable, so that rows of one length keep the random order and no platform's sort decides.
        pools = (pool[np.argsort(-lengths[pool], kind="stable")] for pool in pools)
        batches = [batch for pool in pools for batch in _cut(pool, self.batch_size)]
        return [batches[position] for position in rng.permutation(len(batches))]

    def padding_share(self, epoch: int = 0, widths: Sequence[int] = ()) -> float:
        """Return the share of an epoch's tokens that is padding, where batches are padded to these widths."""
        lengths = np.asarray(self.lengths, dtype=np.int64)
        longest = [(int(lengths[batch].max()), len(batch)) for batch in self.epoch(epoch)]
        padded = sum(next_width(length, widths) * rows for length, rows in longest)
        return 1 - int(lengths.sum()) / padded if padded else 0.0

    def widths(self, epochs: float) -> tuple[int, ...]:
        """Return the lengths to which batches are padded where each shape has its price: buckets, but for
        those whose batches, of all epochs, are padded on to the next one kept by few tokens.
        """
        lengths = np.asarray(self.lengths, dtype=np.int64)
        longest = int(lengths.max())
        num_rows: Counter[int] = Counter()
        for batch in self.epoch(0):
            num_rows[min(bucket(int(lengths[batch].max())), longest)] += len(batch)
        kept = [longest]
        for width in sorted(num_rows, reverse=True):
            if num_rows[width] * epochs * (kept[-1] - width) > SPARE_TOKENS:
                kept.append(width)
        return tuple(reversed(kept))


def in_order(
    features: Features,
    batch_size: int,
    rows: Indices | None = None,
    is_full: bool = False,
    num_tokens: int = 0,
) -> list[Indices]:
    """Return batches for evaluation: every row once (or the given ones), like lengths together, the longest
    first.

    Full batches have as many rows as fit into the tokens of `batch_size` of the longest that are read, or
    into `num_tokens` where these are more.
    """
    order = np.argsort(-features.lengths, kind="stable").astype(np.int64)
    order = order if rows is None else order[np.isin(order, rows)]
    if not is_full or not len(order):
        return list(_cut(order, batch_size))
    lengths = features.lengths[order].astype(np.int64) * features.num_choices
    batches, most_tokens, start = [], max(batch_size * lengths[0], num_tokens), 0
    while start < len(order):
        end = start + int(most_tokens // max(1, lengths[start]))
        batches.append(order[start:end])
        start = end
    return batches


def _cut(order: Indices, size: int) -> Iterator[Indices]:
    return (order[start : start + size] for start in range(0, len(order), size))


@dataclass(frozen=True)
class _Layout:
    """Where the tokens of a batch are: `is_token` in the padded rectangle, `flat` in the flat arrays."""

    is_token: npt.NDArray[np.bool_]
    flat: npt.NDArray[np.int64]
    shift: npt.NDArray[np.int64]


def bucket(length: int) -> int:
    """The length to which a batch is padded, so that few shapes occur: at most an eighth more."""
    step = max(8, 2 ** (length.bit_length() - 4))
    return -(-length // step) * step


def next_width(length: int, widths: Sequence[int]) -> int:
    """Return the first of these rising widths that holds a length; the length itself where none does."""
    place = bisect_left(widths, length)
    return widths[place] if place < len(widths) else length


def _layout(features: Features, sequences: Indices, longest: int | None, widths: Sequence[int]) -> _Layout:
    starts = features.starts[sequences]
    lengths = features.starts[sequences + 1] - starts
    width = next_width(int(lengths.max()), widths)
    if longest is not None:
        width = max(width, min(bucket(width), longest))
    shift = width - lengths if features.pads_left else np.zeros_like(lengths)
    position = np.arange(width)[None, :] - shift[:, None]
    is_token = (position >= 0) & (position < lengths[:, None])
    return _Layout(is_token, (position + starts[:, None])[is_token], shift)


def _sequences(features: Features, indices: Indices) -> Indices:
    choices = np.arange(features.num_choices)
    flat: Indices = (np.asarray(indices)[:, None] * features.num_choices + choices).reshape(-1)
    return flat


def pad_rows(
    features: Features, indices: Indices, longest: int | None = None, widths: Sequence[int] = ()
) -> dict[str, npt.NDArray[Any]]:
    """Return the rows as a model's arguments, padded to their longest; (B, T), or (B, C, T) for choices.

    So that few shapes occur they are padded on to a bucket with `longest`, what the model can read, and to
    the next of some `widths` where these are given.
    """
    layout = _layout(features, _sequences(features, indices), longest, widths)
    shape = layout.is_token.shape
    if features.num_choices > 1:
        shape = (len(indices), features.num_choices, shape[1])
    batch: dict[str, npt.NDArray[Any]] = {
        "input_ids": _pad(layout, features.ids, features.pad_id).reshape(shape),
        "attention_mask": layout.is_token.astype(np.int64).reshape(shape),
    }
    if features.segments is not None:
        padded = _pad(layout, features.segments, features.pad_segment)
        batch["token_type_ids"] = padded.reshape(shape)
    if features.targets is not None:
        batch |= _targets(features, features.targets, indices, layout)
    return batch


def _pad(layout: _Layout, values: npt.NDArray[np.integer], fill: int) -> npt.NDArray[np.int64]:
    padded = np.full(layout.is_token.shape, fill, dtype=np.int64)
    padded[layout.is_token] = values[layout.flat]
    return padded


def _targets(
    features: Features, targets: npt.NDArray[Any], indices: Indices, layout: _Layout
) -> dict[str, npt.NDArray[Any]]:
    match features.task.kind:
        case "tagging":
            return {"labels": _pad(layout, targets, -100)}
        case "span":
            positions = targets[indices].astype(np.int64) + layout.shift[:, None]
            start, end = np.ascontiguousarray(positions.T)
            return {"start_positions": start, "end_positions": end}
        case "regression" | "multi-label" | "embedding" | "reranker":
            return {"labels": targets[indices].astype(np.float32)}
        case _:
            return {"labels": targets[indices].astype(np.int64)}


def trim(
    features: Features, indices: Indices, logits: Sequence[npt.NDArray[np.floating]]
) -> list[npt.NDArray[np.floating]]:
    """Undo `pad_rows` on a batch of predictions: one array a row in the form `score` reads, no padding.

    `logits` is one array (B, C) or (B, 1) for whole texts and choices, (B, T, C) for tags; two, (B, T) each,
    for the start and the end of a span.
    """
    if features.task.kind not in ("tagging", "span"):
        return list(logits[0])
    width = logits[0].shape[1]
    rows = []
    for row, index in enumerate(indices):
        length = int(features.lengths[index])
        part = slice(width - length, width) if features.pads_left else slice(0, length)
        pieces = [values[row, part] for values in logits]
        rows.append(np.stack(pieces) if features.task.kind == "span" else pieces[0])
    return rows
