"""Text as token ids on disk: made once, memory-mapped, documents apart by [SEP].

    files -> documents -> counted words -> vocabulary -> tokenizer -> ids (uint16 or uint32) and their starts

Every k-th document, k = 1 / held-out share, is kept for scoring and never trained on. What a folder of
the cache holds is decided by the files' bytes and the settings, so the same text is never tokenised twice.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from bermo.data.cache import Writer, open_cache
from bermo.data.packed import check_file
from bermo.data.pretrain.documents import Fragment, digest_files, is_one_a_line, read_fragments
from bermo.data.pretrain.vocabulary import (
    add_counts_,
    count_words,
    make_tokenizer,
    make_vocabulary,
)
from bermo.data.text import read_text
from bermo.encoders.backbone import load_tokenizer
from bermo.errors import BermoError
from bermo.files import DAMAGED, cache_root, read_sealed, write_sealed
from bermo.machine import usable_cores
from bermo.pretrain_spec import TextSpec

FORMAT = 1
"""Of what a folder of this cache holds."""
CHUNK = 4_000_000
"""Characters that a process counts at once."""
ENCODED = 1_000_000
"""Characters that are tokenised at once: a token takes hundreds of bytes there."""
COUNTED = 1 << 22
"""Ids that are counted at once."""
FRAGMENT_COST = 20
"""Characters that take as much memory as what stands beside the tokens of a document, however short."""
SMALL = 4 * CHUNK
"""Less text than this is counted in this process, since starting others takes seconds."""
MAX_UNKNOWN = 0.05
ENDS = (".", "!", "?")

Tell = Callable[[str], None]
Documents = Callable[[], Iterator[Fragment]]


@dataclass(frozen=True)
class Tokens:
    """A stream of ids, each document followed by [SEP], and the starts of the documents and of the end."""

    ids: npt.NDArray[Any]
    starts: npt.NDArray[np.int64]

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
class Corpus:
    """Tokenised text for training and for scoring, its tokenizer, and a short name of all this."""

    train: Tokens
    held: Tokens
    pieces: Pieces
    tokenizer: PreTrainedTokenizerBase
    digest: str
    unknown_share: float


def load_corpus(spec: TextSpec, positions: int, tell: Tell) -> Corpus:
    """Read the files of the spec, making vocabulary and token ids where the cache has none."""
    digest = _digest(spec, positions)
    folder = cache_root(spec.cache) / f"text-{digest}"
    by_line = is_one_a_line(spec.files, _every(spec))
    if by_line:
        tell("The text has hardly a blank line: each line is a document of its own.")
    documents = partial(read_fragments, spec.files, spec.limit, by_line)
    tokenizer = _tokenizer(spec, documents, folder / "tokenizer", positions, tell)
    pieces = read_pieces(tokenizer)
    cached = open_cache(
        folder / "ids", lambda writer: _write_ids(writer, spec, documents, tokenizer, pieces, tell)
    )
    tokens = {
        part: Tokens(cached.arrays[part], np.asarray(cached.arrays[f"{part}_starts"]))
        for part in ("train", "held")
    }
    unknown = float(cached.facts["unknown_share"])
    if unknown > MAX_UNKNOWN:
        raise BermoError(
            f"{unknown:.1%} of the tokens are unknown to the tokenizer. Is it one for this language?"
            " Leave --tokenizer out, and a vocabulary is made from the text."
        )
    return Corpus(tokens["train"], tokens["held"], pieces, tokenizer, digest, unknown)


def _digest(spec: TextSpec, positions: int) -> str:
    extra = [file for file in (spec.words,) if file]
    if spec.tokenizer is not None and Path(spec.tokenizer).is_dir():
        extra.append(str(check_file(Path(spec.tokenizer) / "tokenizer.json")))
    facts = [
        FORMAT,
        digest_files([*spec.files, *extra]),
        spec.vocabulary,
        spec.tokenizer,
        spec.held_out,
        spec.limit,
        positions,
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def _every(spec: TextSpec) -> int:
    """Every so many-th document is kept for scoring."""
    return max(2, round(1 / spec.held_out))


def _tokenizer(
    spec: TextSpec, documents: Documents, folder: Path, positions: int, tell: Tell
) -> PreTrainedTokenizerBase:
    if spec.tokenizer is not None:
        return load_tokenizer(spec.tokenizer)
    path = folder / "vocabulary.json"
    pieces = _read_pieces(path)
    if pieces is None:
        tell("Counting words …")
        counts = _count_all(documents())
        tell(
            f"{sum(counts.values()):,} words, {len(counts):,} different; making a vocabulary of"
            f" {spec.vocabulary:,} pieces …"
        )
        words = read_text(Path(spec.words)).split() if spec.words else ()
        pieces = list(make_vocabulary(counts, spec.vocabulary, words))
        write_sealed(path, {"pieces": pieces})
    return make_tokenizer({piece: index for index, piece in enumerate(pieces)}, positions)


def _read_pieces(path: Path) -> list[str] | None:
    """Return the vocabulary that was made before, or None where there is none or it is damaged."""
    try:
        return list(read_sealed(path)["pieces"])
    except (OSError, *DAMAGED):
        return None


def _chunks(documents: Iterable[Fragment], size: int) -> Iterator[list[Fragment]]:
    """Gather fragments of documents into lists of about `size` characters."""
    chunk, length = [], 0
    for fragment in documents:
        chunk.append(fragment)
        length += len(fragment.text) + FRAGMENT_COST
        if length >= size:
            yield chunk
            chunk, length = [], 0
    if chunk:
        yield chunk


def _count_all(documents: Iterator[Fragment]) -> Counter[str]:
    """Count words, in processes where there is much text; neither their number nor their order matters."""
    parts = ([fragment.text for fragment in chunk] for chunk in _chunks(documents, CHUNK))
    first = list(islice(parts, SMALL // CHUNK))
    processes = usable_cores()
    counts: Counter[str] = Counter()
    if len(first) < SMALL // CHUNK or processes == 1:
        for part in chain(first, parts):
            add_counts_(counts, count_words(part))
        return counts
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(count_words, part) for part in first]
        while waiting:
            add_counts_(counts, waiting.pop(0).result())
            # Two chunks a process are under way at any time, so that memory is bounded.
            waiting += [
                pool.submit(count_words, part) for part in islice(parts, max(0, 2 * processes - len(waiting)))
            ]
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
    inside = [not w.startswith(marks) if marks else w.startswith("##") for w in words]
    return Pieces(
        **{name: int(ids[name]) for name in names if name != "unk"},
        size=len(words),
        is_special=special,
        is_inside=np.array(inside) & ~special,
        is_end=np.array([w in ENDS for w in words]),
    )


def _write_ids(
    writer: Writer,
    spec: TextSpec,
    documents: Documents,
    tokenizer: PreTrainedTokenizerBase,
    pieces: Pieces,
    tell: Tell,
) -> Mapping[str, Any]:
    """Tokenise all documents chunk by chunk, on all processors, and append them to their part."""
    dtype = np.uint16 if pieces.size <= 2**16 else np.uint32
    every = _every(spec)
    ends = {"train": 0, "held": 0}
    number = num_tokens = num_unknown = 0
    for part in ends:
        writer.append({part: np.empty(0, dtype), f"{part}_starts": np.zeros(1, np.int64)})
    backend = tokenizer._tokenizer
    for chunk in _chunks(documents(), ENCODED):
        texts = [fragment.text for fragment in chunk]
        encodings = backend.encode_batch_fast(texts, add_special_tokens=False)
        for fragment, encoding in zip(chunk, encodings, strict=True):
            part = "held" if number % every == every - 1 else "train"
            ids = np.array([*encoding.ids, pieces.sep] if fragment.is_end else encoding.ids, dtype=dtype)
            ends[part] += len(ids)
            writer.append({part: ids})
            if fragment.is_end:
                writer.append({f"{part}_starts": np.array([ends[part]], np.int64)})
            num_unknown += int((ids == tokenizer.unk_token_id).sum())
            num_tokens += len(ids)
            number += fragment.is_end
        tell(f"{number:,} documents, {num_tokens:,} tokens …")
    if not ends["held"] or not ends["train"]:
        raise BermoError(
            f"The text has {number} documents, too few to keep every {every}th for scoring. Add text,"
            " put blank lines between documents, or raise --held-out."
        )
    return {"documents": number, "unknown_share": num_unknown / max(1, num_tokens)}


def unigram_entropy(corpus: Corpus) -> float:
    """Return the entropy in nats of how often each ordinary token comes in the training text."""
    ids, size = corpus.train.ids, corpus.pieces.size
    # In blocks: all ids at once would be copied at eight bytes each.
    blocks = (ids[start : start + COUNTED] for start in range(0, len(ids), COUNTED))
    counts = sum((np.bincount(block, minlength=size) for block in blocks), np.zeros(size, np.int64))
    counts = counts[~corpus.pieces.is_special]
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())
