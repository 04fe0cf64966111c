"""Texts tokenised in chunks, by our tokenizer and by that of a teacher, and which tokens belong together.

    text -> ids of ours
         -> ids of the teacher's, and for each the token of ours that holds its last character, its owner

The last character, since some tokenizers count the blank before a word to its first token. Words are made of
tokens of ours (masking.word_starts), so the teacher's tokens of a word are those whose owners are in it.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from multiprocessing import get_context
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from bermo.machine import usable_cores

A = TypeVar("A")
B = TypeVar("B")
Ints = npt.NDArray[np.int64]
# Tokenizers start threads of their own, for which every core is taken already.
THREADS = "TOKENIZERS_PARALLELISM"


@dataclass(frozen=True)
class Encoded:
    """A text as ids; where there is a teacher, also as the teacher's, with their owners."""

    ids: Ints
    other_ids: Ints | None = None
    owners: Ints | None = None


def plain_json(tokenizer: PreTrainedTokenizerBase) -> str:
    """Write a fast tokenizer as JSON that neither cuts nor pads, whatever its own file says."""
    backend: Any = tokenizer._tokenizer
    copy = Tokenizer.from_str(backend.to_str())
    copy.no_truncation()
    copy.no_padding()
    return copy.to_str()


def encode(texts: Sequence[str], own: str, other: str | None = None) -> list[Encoded]:
    """Tokenise texts by our tokenizer and by another, both given as JSON, without special tokens."""
    if other is None:
        found = _read(own).encode_batch_fast(list(texts), add_special_tokens=False)
        return [Encoded(np.array(one.ids, dtype=np.int64)) for one in found]
    ours, theirs = (_read(name).encode_batch(list(texts), add_special_tokens=False) for name in (own, other))
    return [_align(a, b) for a, b in zip(ours, theirs, strict=True)]


def _align(ours: Any, theirs: Any) -> Encoded:
    starts = _offsets(ours)[:, 0]
    ids = np.array(ours.ids, dtype=np.int64)
    spans = _offsets(theirs)
    last = np.maximum(spans[:, 0], spans[:, 1] - 1)
    owners = np.maximum(np.searchsorted(starts, last, side="right") - 1, 0)
    other = np.array(theirs.ids, dtype=np.int64)
    # A text of which our tokenizer keeps nothing has no owners.
    return Encoded(ids, other, owners) if len(ids) else Encoded(ids, other[:0], owners[:0])


def _offsets(encoding: Any) -> Ints:
    return np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)


@lru_cache(4)
def _read(text: str) -> Tokenizer:
    return Tokenizer.from_str(text)


def in_processes(function: Callable[[A], B], parts: Iterable[A], least: int) -> Iterator[B]:
    """Yield function(part) in the parts' order; with `least` parts or more, computed on all cores.

    Fewer stay in this process, since starting others takes seconds. Two parts a process are under way at any
    time, so that memory is bounded.
    """
    parts = iter(parts)
    first, processes = list(islice(parts, least)), usable_cores()
    if len(first) < least or processes == 1:
        yield from map(function, chain(first, parts))
        return
    context = get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_use_one_thread) as pool:
        waiting: deque[Future[B]] = deque(pool.submit(function, part) for part in first)
        while waiting:
            waiting += [
                pool.submit(function, part) for part in islice(parts, max(0, 2 * processes - len(waiting)))
            ]
            yield waiting.popleft().result()


def _use_one_thread() -> None:
    os.environ[THREADS] = "false"
