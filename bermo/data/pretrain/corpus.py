"""Text as token ids on disk: made once, memory-mapped, documents apart by [SEP].

    files -> documents -> counted words -> vocabulary -> tokenizer -> ids (uint16 or uint32) and their starts
                          or a tokenizer that exists, words added      [-> ids of a teacher, their owners]

Every k-th document, k = 1 / held-out share, is kept for scoring and never trained on. What a folder of
the cache holds is decided by the files' bytes and the settings, so the same text is never tokenised twice.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from bermo.data.cache import open_cache
from bermo.data.features import fingerprint
from bermo.data.pretrain.documents import Fragment, digest_files, gather, is_one_a_line, read_fragments
from bermo.data.pretrain.encoding import in_processes, plain_json
from bermo.data.pretrain.own_words import Extended, with_words
from bermo.data.pretrain.vocabulary import (
    add_counts_,
    count_words,
    make_tokenizer,
    make_vocabulary,
)
from bermo.data.pretrain.writing import write_ids
from bermo.data.text import read_text
from bermo.encoders.backbone import load_tokenizer
from bermo.errors import BermoError
from bermo.files import DAMAGED, cache_root, read_sealed, write_sealed
from bermo.pretrain_spec import TextSpec

FORMAT, FORMAT_OF_OTHERS = 1, 2
"""Of what a folder of this cache holds, with a vocabulary of the text and with another tokenizer's."""
CHUNK = 4_000_000
"""Characters that a process counts at once."""
COUNTED = 1 << 22
"""Ids that are counted at once."""
SMALL = 4 * CHUNK
"""Less text than this is counted in this process, since starting others takes seconds."""
MAX_UNKNOWN = 0.05
ENDS = (".", "!", "?")

Tell = Callable[[str], None]
Documents = Callable[[], Iterator[Fragment]]


@dataclass(frozen=True)
class Other:
    """The same stream in the ids of a teacher, and for each the index of the token of ours that owns it."""

    ids: npt.NDArray[Any]
    owners: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Tokens:
    """A stream of ids, each document followed by [SEP], and the starts of the documents and of the end."""

    ids: npt.NDArray[Any]
    starts: npt.NDArray[np.int64]
    other: Other | None = None

    @property
    def num_documents(self) -> int:
        return len(self.starts) - 1


@dataclass(frozen=True)
class Pieces:
    """What packing and masking must know of a vocabulary: its special ids, and a fact for each id."""

    pad: int
    cls: int
    sep: int
    mask: int
    size: int
    is_special: npt.NDArray[np.bool_]
    is_inside: npt.NDArray[np.bool_]
    """Goes on with the word of the token before it."""
    is_end: npt.NDArray[np.bool_]
    """Ends a sentence."""


@dataclass(frozen=True)
class Frame:
    """The ids around the tokens of a row and behind them."""

    cls: int
    sep: int
    pad: int


@dataclass(frozen=True, eq=False)
class Corpus:
    """Tokenised text for training and for scoring, its tokenizer, and a short name of all this."""

    train: Tokens
    held: Tokens
    pieces: Pieces
    tokenizer: PreTrainedTokenizerBase
    digest: str
    unknown_share: float
    frame: Frame | None = None
    """Of the rows that a teacher reads, where there is one."""
    cuts: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Pieces that were added to a tokenizer that exists, and the ids that stood for each before."""


def load_corpus(spec: TextSpec, positions: int, tell: Tell, teacher: str | None = None) -> Corpus:
    """Read the files of the spec, making vocabulary and token ids where the cache has none.

    With the name of a teacher, the text is also tokenised as the teacher reads it.
    """
    digest = _digest(spec, positions)
    folder = cache_root(spec.cache) / f"text-{digest}"
    by_line = is_one_a_line(spec.files, _every(spec))
    if by_line:
        tell("The text has hardly a blank line: each line is a document of its own.")
    documents = partial(read_fragments, spec.files, spec.limit, by_line)
    extended = _tokenizer(spec, documents, folder / "tokenizer", positions, tell)
    tokenizer, pieces = extended.tokenizer, read_pieces(extended.tokenizer)
    tokenizers, name, frame = [tokenizer], "ids", None
    if teacher is not None:
        tokenizers.append(load_tokenizer(teacher))
        frame = read_frame(tokenizers[1], teacher)
        name = f"ids-{hashlib.sha256(plain_json(tokenizers[1]).encode()).hexdigest()[:16]}"
    every = _every(spec)
    cached = open_cache(folder / name, lambda writer: write_ids(writer, documents, every, tokenizers, tell))
    tokens = {part: _tokens(cached.arrays, part) for part in ("train", "held")}
    unknown = float(cached.facts["unknown_share"])
    if unknown > MAX_UNKNOWN:
        raise BermoError(
            f"{unknown:.1%} of the tokens are unknown to the tokenizer. Is it one for this language?"
            " Leave --tokenizer out, and a vocabulary is made from the text."
        )
    return Corpus(tokens["train"], tokens["held"], pieces, tokenizer, digest, unknown, frame, extended.cuts)


def _tokens(arrays: Mapping[str, npt.NDArray[Any]], part: str) -> Tokens:
    other = None
    if f"{part}_other" in arrays:
        other = Other(arrays[f"{part}_other"], arrays[f"{part}_owners"])
    return Tokens(arrays[part], np.asarray(arrays[f"{part}_starts"]), other)


def _digest(spec: TextSpec, positions: int) -> str:
    """Return a short name of all that decides the ids; wherever an equal tokenizer lies, it is the same."""
    extra = [file for file in (spec.words,) if file]
    tokenizer = spec.tokenizer
    if tokenizer is not None and isinstance(loaded := load_tokenizer(tokenizer), PreTrainedTokenizerFast):
        tokenizer = fingerprint(loaded)
    facts = [
        FORMAT if spec.tokenizer is None else FORMAT_OF_OTHERS,
        digest_files([*spec.files, *extra]),
        spec.vocabulary,
        tokenizer,
        spec.held_out,
        spec.limit,
        positions,
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def _every(spec: TextSpec) -> int:
    """Every so many-th document is kept for scoring."""
    return max(2, round(1 / spec.held_out))


def _tokenizer(spec: TextSpec, documents: Documents, folder: Path, positions: int, tell: Tell) -> Extended:
    words = read_text(Path(spec.words)).split() if spec.words else []
    if spec.tokenizer is not None:
        tokenizer = load_tokenizer(spec.tokenizer)
        if not words:
            return Extended(tokenizer, {})
        read_pieces(tokenizer)  # refuses one that cannot be pretrained with
        extended = with_words(tokenizer, words)
        tell(f"{len(extended.cuts):,} of {len(words):,} words get a piece of their own.")
        return extended
    path = folder / "vocabulary.json"
    pieces = _read_pieces(path)
    if pieces is None:
        tell("Counting words …")
        counts = _count_all(documents())
        tell(
            f"{sum(counts.values()):,} words, {len(counts):,} different; making a vocabulary of"
            f" {spec.vocabulary:,} pieces …"
        )
        pieces = list(make_vocabulary(counts, spec.vocabulary, words))
        write_sealed(path, {"pieces": pieces})
    return Extended(make_tokenizer({piece: index for index, piece in enumerate(pieces)}, positions), {})


def _read_pieces(path: Path) -> list[str] | None:
    """Return the vocabulary that was made before, or None where there is none or it is damaged."""
    try:
        return list(read_sealed(path)["pieces"])
    except (OSError, *DAMAGED):
        return None


def _count_all(documents: Iterator[Fragment]) -> Counter[str]:
    """Count words, in processes where there is much text; neither their number nor their order matters."""
    parts = ([fragment.text for fragment in chunk] for chunk in gather(documents, CHUNK))
    counts: Counter[str] = Counter()
    for more in in_processes(count_words, parts, SMALL // CHUNK):
        add_counts_(counts, more)
    return counts


def read_pieces(tokenizer: PreTrainedTokenizerBase) -> Pieces:
    """Look up what packing needs; a tokenizer without the five special tokens is refused."""
    names = ("pad", "cls", "sep", "mask", "unk")
    ids = {name: getattr(tokenizer, f"{name}_token_id") for name in names}
    missing = [name for name, value in ids.items() if value is None]
    if missing or not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise BermoError(
            f"This tokenizer cannot be pretrained with: it lacks {', '.join(missing) or 'tokenizer.json'}."
            " Name an encoder's tokenizer, or leave --tokenizer out."
        )
    words = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    special = np.zeros(len(words), dtype=bool)
    special[[value for name, value in ids.items() if name != "unk"]] = True
    # Byte-level and sentence-piece vocabularies mark what starts a word, WordPiece what goes on with it.
    marks = next((mark for mark in ("Ġ", "▁") if any(w.startswith(mark) for w in words)), None)
    inside = np.array([not w.startswith(marks) if marks else w.startswith("##") for w in words])
    inside[list(tokenizer.get_added_vocab().values())] = False
    return Pieces(
        **{name: int(ids[name]) for name in names if name != "unk"},
        size=len(words),
        is_special=special,
        is_inside=inside & ~special,
        is_end=np.array([w in ENDS for w in words]),
    )


def read_frame(tokenizer: PreTrainedTokenizerBase, name: str) -> Frame:
    """Look up what stands around a teacher's rows; a tokenizer that has none of it is refused."""
    ids = {part: getattr(tokenizer, f"{part}_token_id") for part in ("cls", "sep", "pad")}
    missing = [part for part, value in ids.items() if value is None]
    if missing or not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise BermoError(
            f'"{name}" cannot teach: its tokenizer lacks {", ".join(missing) or "tokenizer.json"}.'
            " Name an encoder such as BERT, MPNet or a sentence encoder made of one."
        )
    return Frame(**{part: int(value) for part, value in ids.items()})


def unigram_entropy(corpus: Corpus) -> float:
    """Return the entropy in nats of how often each ordinary token comes in the training text."""
    ids, size = corpus.train.ids, corpus.pieces.size
    # In blocks: all ids at once would be copied at eight bytes each.
    blocks = (ids[start : start + COUNTED] for start in range(0, len(ids), COUNTED))
    counts = sum((np.bincount(block, minlength=size) for block in blocks), np.zeros(size, np.int64))
    counts = counts[~corpus.pieces.is_special]
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())
