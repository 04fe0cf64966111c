"""Rows tokenised once, kept on disk as flat arrays, and read memory-mapped; or in memory, for prediction.

The cache's name is a hash of all that decides its content: the rows, the tokenizer (sha256 of its backend's
JSON), lengths, labels and the version of this format. The share of unknown tokens is checked before
any training.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bermo.data.cache import Arrays, MemoryWriter, Writer, open_cache
from bermo.data.rows import ApartRows, ChoiceRows, Rows, TextRows, digest, pick
from bermo.data.tasks import Task
from bermo.data.tokens import Chunk, Encoder, encode
from bermo.data.unknown import check_unknown, count_unknown
from bermo.encoders.plain_tokenizer import AnyTokenizer, PlainTokenizer, plain
from bermo.errors import BermoError
from bermo.files import cache_root
from bermo.spec import DataSpec

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FORMAT = 1
CHUNK_ROWS = 1000
Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class TokenFacts:
    """What was counted while tokenising; a passage cut into pieces loses nothing and is not truncated."""

    unknown_share: float
    truncated_share: float
    lost_words: int
    num_tokens: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Features:
    """Tokens of all sequences end to end; sequence i is `ids[starts[i]:starts[i + 1]]`.

    `targets`: a class or number for each row, or 0 and 1 for all labels; for tags one for each token; for
    spans (start, end) a piece. `row_of`: the row of each piece. `words`: the word whose first piece a token
    is, or -1. `spans`: a token's first and last character in the passage, or -1.
    """

    task: Task
    labels: tuple[str, ...]
    rows: Rows
    facts: TokenFacts
    ids: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    segments: npt.NDArray[np.uint8] | None = None
    targets: npt.NDArray[Any] | None = None
    row_of: npt.NDArray[np.int32] | None = None
    words: npt.NDArray[np.int32] | None = None
    spans: npt.NDArray[np.int32] | None = None
    num_choices: int = 1
    pad_id: int = 0
    pad_segment: int = 0
    pads_left: bool = False
    classifier_id: int | None = None

    def __len__(self) -> int:
        return (len(self.starts) - 1) // self.num_choices

    @cached_property
    def lengths(self) -> npt.NDArray[np.int32]:
        """Tokens of each feature; of the longest of its choices where it has several."""
        tokens = np.diff(self.starts).astype(np.int32)
        longest: npt.NDArray[np.int32] = tokens.reshape(-1, self.num_choices).max(axis=1)
        return longest

    @cached_property
    def largest_id(self) -> int:
        """The largest number of a token, that of padding included."""
        return max(self.pad_id, int(self.ids.max(initial=0)))

    @property
    def unknown_share(self) -> float:
        """Unknown tokens among all that are not special."""
        return self.facts.unknown_share

    @property
    def truncated_share(self) -> float:
        """Rows that lost tokens to `max_length`."""
        return self.facts.truncated_share


def make_features(
    rows: Rows,
    task: Task,
    labels: tuple[str, ...],
    tokenizer: "PreTrainedTokenizerBase",
    spec: DataSpec,
    has_segments: bool,
    progress: Progress | None = None,
    is_apart: bool = False,
) -> Features:
    """Tokenise the rows, or open the cache where they are; too many unknown tokens are an error.

    With `is_apart` the two texts of a pair are sequences of their own.
    """
    if not len(rows):
        raise BermoError("There are no rows to tokenise.")
    encoder = _make_encoder(plain(tokenizer), labels, spec, has_segments, is_apart)
    folder = cache_root(spec.cache) / "tokens" / _key(rows, task, encoder)
    cached = open_cache(folder, lambda writer: _write(writer, rows, encoder, progress))
    features = _features(rows, task, encoder, cached.arrays, cached.facts)
    check_unknown(features.unknown_share, spec.max_unknown, rows, tokenizer)
    return features


def tokenise(
    rows: Rows,
    task: Task,
    labels: tuple[str, ...],
    tokenizer: AnyTokenizer,
    spec: DataSpec,
    has_segments: bool,
    is_apart: bool = False,
) -> Features:
    """Tokenise the rows in memory, for a model that is only asked: unknown tokens are no error there."""
    encoder, writer = _make_encoder(plain(tokenizer), labels, spec, has_segments, is_apart), MemoryWriter()
    facts = _write(writer, rows, encoder, None)
    return _features(rows, task, encoder, writer.arrays(), facts)


def _features(rows: Rows, task: Task, encoder: Encoder, arrays: Arrays, facts: Mapping[str, Any]) -> Features:
    known = encoder.tokenizer.facts
    return Features(
        task=task,
        labels=encoder.labels,
        rows=rows,
        facts=TokenFacts(**{name: facts[name] for name in TokenFacts.__dataclass_fields__}),
        **arrays,
        num_choices=_sequences_a_row(rows, encoder.is_apart),
        pad_id=known.pad_id,
        pad_segment=known.pad_segment,
        pads_left=known.padding_side == "left",
        classifier_id=known.classifier_id,
    )


def _sequences_a_row(rows: Rows, is_apart: bool) -> int:
    match rows:
        case TextRows():
            return 2 if is_apart and rows.second is not None else 1
        case ChoiceRows():
            return len(rows.endings[0])
        case ApartRows():
            return len(rows.texts[0])
        case _:
            return 1


def _make_encoder(
    tokenizer: PlainTokenizer,
    labels: tuple[str, ...],
    spec: DataSpec,
    has_segments: bool,
    is_apart: bool,
) -> Encoder:
    longest = int(min(spec.max_length, tokenizer.facts.max_length))
    return Encoder(tokenizer, labels, longest, spec.stride, has_segments, is_apart)


def fingerprint(tokenizer: AnyTokenizer) -> str:
    """Return the sha256 of all that decides how a text becomes tokens, whatever was called before."""
    known = plain(tokenizer)
    sides, special = (known.facts.padding_side, known.facts.truncation_side), sorted(known.facts.special_ids)
    return _fingerprint(known.backend.to_str(), *sides, tuple(special))


@lru_cache(4)  # each split asks for it, and a vocabulary takes a while to parse
def _fingerprint(backend: str, padding_side: str, truncation_side: str, special: tuple[int, ...]) -> str:
    content = json.loads(backend)
    # Each call sets these two; they are arguments, not what the tokenizer is.
    content.pop("truncation"), content.pop("padding")
    parts = [content, [padding_side, truncation_side, special]]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _key(rows: Rows, task: Task, encoder: Encoder) -> str:
    parts = [
        FORMAT,
        digest(rows),
        fingerprint(encoder.tokenizer),
        encoder.max_length,
        encoder.labels,
        encoder.stride if task.kind == "span" else 0,
        encoder.has_segments,
        task.kind,
        *(["apart"] if encoder.is_apart else []),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _write(
    writer: Writer | MemoryWriter, rows: Rows, encoder: Encoder, progress: Progress | None
) -> Mapping[str, Any]:
    """Tokenise by chunks, so that the tokens of a large file never stand in memory together."""
    writer.append({"starts": np.zeros(1, dtype=np.int64)})
    tokens = unknown = truncated = lost = total = 0
    for begin in range(0, len(rows), CHUNK_ROWS):
        end = min(begin + CHUNK_ROWS, len(rows))
        chunk = encode(encoder, pick(rows, range(begin, end)))
        _check_lengths(chunk, begin)
        stops = total + np.cumsum(chunk.lengths, dtype=np.int64)
        row_of = {"row_of": begin + np.array(chunk.row_of, dtype=np.int32)} if chunk.row_of else {}
        writer.append({**chunk.arrays, **row_of, "starts": stops})
        counted = count_unknown(chunk.arrays["ids"], encoder.tokenizer)
        tokens, unknown, total = tokens + counted.tokens, unknown + counted.unknown, int(stops[-1])
        truncated, lost = truncated + chunk.truncated, lost + chunk.lost_words
        if progress is not None:
            progress(end, len(rows))
    facts = TokenFacts(
        unknown_share=unknown / max(tokens, 1),
        truncated_share=truncated / len(rows),
        lost_words=lost,
        num_tokens=total,
    )
    return asdict(facts)


def _check_lengths(chunk: Chunk, begin: int) -> None:
    empty = np.flatnonzero(chunk.lengths == 0)
    if len(empty):
        raise BermoError(
            f"A text near row {begin + int(empty[0]) + 1} has no tokens at all: it holds only signs that"
            " the tokenizer drops. Remove the row."
        )
