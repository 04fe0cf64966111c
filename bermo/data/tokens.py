"""Rows to token arrays, one function for each kind of task, a chunk of rows at a time.

The arrays are flat: the tokens of all sequences end to end, with the lengths beside them. A passage longer
than `max_length` is cut into pieces that overlap by `stride` tokens; a question's answer is marked in the
pieces that hold all of it, and on the classifier token of the others. A word's tag is that of its first
piece, the others have -100.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from bermo.data.rows import ApartRows, ChoiceRows, Rows, SpanRows, TaggedRows, TextRows
from bermo.encoders.plain_tokenizer import AnyTokenizer, PlainTokenizer, backend_content, plain
from bermo.errors import BermoError, nearest

LONGEST_QUESTION = 64
"""Tokens kept of a question, as in BERT's own SQuAD code; a third of `max_length` if that is less."""

IGNORED = -100
"""The label of a token without one; torch's cross entropy skips it."""

Ints = npt.NDArray[np.int32]
Cut = Literal["longest_first", "only_first", "only_second"]
"""Which text of a pair loses its end where both are too long together."""


@dataclass(frozen=True)
class Encoder:
    """A tokenizer with all it needs to turn rows into arrays."""

    tokenizer: PlainTokenizer
    labels: tuple[str, ...]
    max_length: int
    stride: int
    has_segments: bool
    is_apart: bool = False
    """Whether the two texts of a pair are sequences of their own, and not one."""


@dataclass(frozen=True)
class Chunk:
    """Flat arrays of a chunk of rows, the length of each sequence, and how many rows or words were cut."""

    arrays: dict[str, npt.NDArray[Any]]
    lengths: Ints
    truncated: int = 0
    lost_words: int = 0
    row_of: Sequence[int] = field(default_factory=tuple)


def encode(encoder: Encoder, rows: Rows) -> Chunk:
    """Return the arrays of these rows."""
    match rows:
        case TextRows(second=None):
            return _encode_text(encoder, rows)
        case TextRows():
            return _encode_pairs(encoder, rows) if encoder.is_apart else _encode_text(encoder, rows)
        case ChoiceRows():
            return _encode_choice(encoder, rows)
        case TaggedRows():
            return _encode_tagged(encoder, rows)
        case SpanRows():
            return _encode_span(encoder, rows)
        case ApartRows():
            return _encode_apart(encoder, rows)


def _call(
    encoder: Encoder,
    texts: Sequence[Any],
    others: Sequence[str] | None = None,
    cut: Cut = "longest_first",
    stride: int = 0,
    is_split: bool = False,
) -> list[Any]:
    """Return the encoding of each text, or pair of texts, with its special tokens, cut to `max_length`."""
    backend, facts = encoder.tokenizer.backend, encoder.tokenizer.facts
    with _unchanged(backend):
        backend.no_padding()
        backend.enable_truncation(
            encoder.max_length, stride=stride, strategy=cut, direction=facts.truncation_side
        )
        backend.encode_special_tokens = facts.splits_special
        inputs = list(texts) if others is None else list(zip(texts, others, strict=True))
        return list(backend.encode_batch(inputs, is_pretokenized=is_split))


@contextmanager
def _unchanged(backend: Any) -> Iterator[None]:
    """Undo what a call sets in a tokenizer: its saved file must not depend on whether it was called."""
    truncation, padding = backend.truncation, backend.padding
    try:
        yield
    finally:
        backend.no_truncation()
        backend.no_padding()
        if truncation is not None:
            backend.enable_truncation(**truncation)
        if padding is not None:
            backend.enable_padding(**padding)


def _flat(lists: Iterable[Iterable[int]], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    return np.fromiter(chain.from_iterable(lists), dtype=dtype)


def _tokens(encoder: Encoder, batch: Sequence[Any]) -> tuple[dict[str, npt.NDArray[Any]], Ints]:
    """Return the token ids, the segment ids where the family has them, and the lengths."""
    ids = [item.ids for item in batch]
    lengths = np.array([len(one) for one in ids], dtype=np.int32)
    arrays = {"ids": _flat(ids, np.int32)}
    if encoder.has_segments:
        arrays["segments"] = _flat((item.type_ids for item in batch), np.uint8)
    return arrays, lengths


def _encode_text(encoder: Encoder, rows: TextRows) -> Chunk:
    batch = _call(encoder, rows.first, rows.second)
    arrays, lengths = _tokens(encoder, batch)
    if rows.labels is not None:
        arrays["targets"] = _text_targets(encoder, rows.labels)
    return Chunk(arrays, lengths, len(_overfull(encoder, batch, lengths)))


def _text_targets(encoder: Encoder, labels: Sequence[Any]) -> npt.NDArray[Any]:
    """Return numbers as they are, the number of each class, or 0 and 1 for all labels, (rows, labels)."""
    if isinstance(labels[0], float):
        return np.array(labels, dtype=np.float32)
    if not isinstance(labels[0], tuple):
        return _label_ids(encoder, labels)
    targets = np.zeros((len(labels), len(encoder.labels)), dtype=np.uint8)
    rows = np.repeat(np.arange(len(labels)), [len(label) for label in labels])
    targets[rows, _label_ids(encoder, list(chain.from_iterable(labels)))] = 1
    return targets


def _encode_choice(encoder: Encoder, rows: ChoiceRows) -> Chunk:
    choices = len(rows.endings[0])
    first = [text for text in rows.first for _ in range(choices)]
    second = list(chain.from_iterable(rows.endings))
    batch = _call(encoder, first, second)
    arrays, lengths = _tokens(encoder, batch)
    if rows.labels is not None:
        arrays["targets"] = _label_ids(encoder, rows.labels)
    cut = {index // choices for index in _overfull(encoder, batch, lengths)}
    return Chunk(arrays, lengths, len(cut))


def _encode_apart(encoder: Encoder, rows: ApartRows) -> Chunk:
    chunk = _encode_several(encoder, rows.texts)
    if rows.labels is not None:
        chunk.arrays["targets"] = np.array(rows.labels, dtype=np.float32)
    return chunk


def _encode_pairs(encoder: Encoder, rows: TextRows) -> Chunk:
    chunk = _encode_several(encoder, list(zip(rows.first, rows.second or (), strict=True)))
    if rows.labels is not None:
        chunk.arrays["targets"] = _text_targets(encoder, rows.labels)
    return chunk


def _encode_several(encoder: Encoder, texts: Sequence[tuple[str, ...]]) -> Chunk:
    """Return each text of each row as a sequence of its own."""
    size = len(texts[0])
    batch = _call(encoder, list(chain.from_iterable(texts)))
    arrays, lengths = _tokens(encoder, batch)
    return Chunk(arrays, lengths, len({index // size for index in _overfull(encoder, batch, lengths)}))


def _overfull(encoder: Encoder, batch: Sequence[Any], lengths: Ints) -> list[int]:
    """Return the sequences that lost tokens; only those of full length can have."""
    full = np.flatnonzero(lengths == encoder.max_length).tolist()
    return [index for index in full if batch[index].overflowing]


def _label_ids(encoder: Encoder, labels: Sequence[str]) -> npt.NDArray[np.int64]:
    ids = {name: index for index, name in enumerate(encoder.labels)}
    for label in labels:
        if label not in ids:
            raise BermoError(f'There is no label "{label}".{nearest(label, encoder.labels)}')
    return np.array([ids[label] for label in labels], dtype=np.int64)


def _encode_tagged(encoder: Encoder, rows: TaggedRows) -> Chunk:
    words = rows.words
    if drops_spaces(encoder.tokenizer):
        words = [[f" {word}" for word in row] for row in words]
    batch = _call(encoder, [list(row) for row in words], is_split=True)
    arrays, lengths = _tokens(encoder, batch)
    ids = (-1 if word is None else word for item in batch for word in item.word_ids)
    word_of = np.fromiter(ids, dtype=np.int32)
    is_start = np.zeros(len(word_of), dtype=np.bool_)
    is_start[np.cumsum(lengths) - lengths] = True
    is_first = (word_of >= 0) & (is_start | (word_of != np.roll(word_of, 1)))
    arrays["words"] = np.where(is_first, word_of, -1).astype(np.int32)
    counts = np.array([len(row) for row in rows.words])
    if rows.tags is not None:
        tags = _label_ids(encoder, list(chain.from_iterable(rows.tags)))
        offset = np.repeat(np.cumsum(counts) - counts, lengths)
        index = np.where(is_first, offset + word_of, 0)
        arrays["targets"] = np.where(is_first, tags[index], IGNORED).astype(np.int32)
    kept = np.add.reduceat(is_first, np.cumsum(lengths) - lengths)
    return Chunk(arrays, lengths, int(np.sum(kept < counts)), int(np.sum(counts - kept)))


def drops_spaces(tokenizer: AnyTokenizer) -> bool:
    """Tell whether a word given alone would lose the space before it, as in byte-level vocabularies."""
    splitter = backend_content(plain(tokenizer).backend)["pre_tokenizer"] or {}
    parts = splitter.get("pretokenizers", [splitter])
    return any(p.get("type") == "ByteLevel" and not p.get("add_prefix_space") for p in parts)


def _encode_span(encoder: Encoder, rows: SpanRows) -> Chunk:
    facts = encoder.tokenizer.facts
    room, longest = _room(encoder)
    questions, cut = _cut_questions(encoder.tokenizer.backend, rows.questions, longest)
    # A family that pads on the left has its classifier token last: there the passage comes first.
    context_side = 1 if facts.padding_side == "right" else 0
    texts = (questions, list(rows.contexts))
    whole = _call(
        encoder,
        *(texts if context_side == 1 else texts[::-1]),
        cut="only_second" if context_side == 1 else "only_first",
        stride=min(encoder.stride, room // 2),
    )
    pieces = [(row, piece) for row, item in enumerate(whole) for piece in (item, *item.overflowing)]
    row_of, batch = [row for row, _ in pieces], [piece for _, piece in pieces]
    arrays, lengths = _tokens(encoder, batch)
    spans = _flat((offsets for item in batch for offsets in item.offsets), np.int32).reshape(-1, 2)
    sides = (side == context_side for item in batch for side in item.sequence_ids)
    is_context = np.fromiter(sides, dtype=np.bool_)
    arrays["spans"] = np.where(is_context[:, None], spans, -1).astype(np.int32)
    if rows.answers is not None:
        golds = [rows.answers[row][0] if rows.answers[row] else None for row in row_of]
        arrays["targets"] = _positions(arrays, lengths, golds, facts.classifier_id)
    return Chunk(arrays, lengths, cut, row_of=row_of)


def _room(encoder: Encoder) -> tuple[int, int]:
    """Return the fewest tokens that a passage gets, and the most that a question may take."""
    longest = min(LONGEST_QUESTION, encoder.max_length // 3)
    added = encoder.tokenizer.backend.num_special_tokens_to_add(is_pair=True)
    return encoder.max_length - longest - added, longest


def _cut_questions(backend: Any, questions: Sequence[str], longest: int) -> tuple[list[str], int]:
    """Return the questions cut to `longest` tokens, and how many were."""
    kept, cut = list(questions), 0
    # A token has at least a byte, so only these can be too long.
    long = [i for i, question in enumerate(questions) if len(question.encode()) > longest]
    if not long:
        return kept, cut
    with _unchanged(backend):
        backend.no_truncation()
        backend.no_padding()
        batch = backend.encode_batch([questions[i] for i in long], add_special_tokens=False)
    for i, item in zip(long, batch, strict=True):
        offsets = item.offsets
        if len(offsets) > longest:
            kept[i] = questions[i][: offsets[longest - 1][1]]
            cut += 1
    return kept, cut


def _positions(
    arrays: dict[str, npt.NDArray[Any]],
    lengths: Ints,
    golds: Sequence[tuple[str, int] | None],
    classifier: int | None,
) -> Ints:
    """Return the first and last token of each piece's answer, or twice that of the classifier token."""
    positions = np.zeros((len(lengths), 2), dtype=np.int32)
    stops = np.cumsum(lengths)
    for piece, (start, stop, gold) in enumerate(zip(stops - lengths, stops, golds, strict=True)):
        span = None if gold is None else _find_answer(arrays["spans"][start:stop], *gold)
        if span is None:
            null = np.flatnonzero(arrays["ids"][start:stop] == classifier)
            span = (int(null[0]),) * 2 if len(null) else (0, 0)
        positions[piece] = span
    return positions


def _find_answer(spans: Ints, text: str, begin: int) -> tuple[int, int] | None:
    """Return the tokens that cover the answer, or None if it does not lie wholly in this piece."""
    end = begin + len(text)
    inside = np.flatnonzero(spans[:, 0] >= 0)
    if not len(inside) or spans[inside[0], 0] > begin or spans[inside[-1], 1] < end:
        return None
    first = int(np.searchsorted(spans[inside, 1], begin, side="right"))
    last = int(np.searchsorted(spans[inside, 0], end, side="left")) - 1
    return (int(inside[first]), int(inside[last])) if first <= last else None
