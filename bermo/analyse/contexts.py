"""Where else a word of a sentence has a like vector: its nearest contexts in a corpus (Hoover et al. 2020,
"exBERT").

    near(w, v) = cos(h_w^l, h_v^l)      v every word of the corpus; a word's vector is the mean of its pieces
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from bermo.analyse.words import pool_words
from bermo.errors import BermoError, nearest
from bermo.vectors import Encoder, stream_vectors

NEAREST = 5
AROUND = 30
"""Letters that are shown on each side of a word."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """A word of the sentence, and a word of the corpus whose vector is like its own."""

    word: str
    cosine: float
    found: str
    text: str
    """What stands around the found word, which is between « and »."""


def words_of(encoder: Encoder, text: str, longest: int) -> dict[int, str]:
    """Return the words of a text with letters in them, by their number in it."""
    spans = word_spans(encoder, text, longest)
    words = {number: text[start:end].strip() for number, (start, end) in spans.items()}
    return {number: word for number, word in words.items() if any(map(str.isalnum, word))}


def choose_words(encoder: Encoder, text: str, wanted: Sequence[str], longest: int) -> dict[int, str]:
    """Return the words of the sentence that were asked for, or all of them."""
    known = words_of(encoder, text, longest)
    lowered = {word.lower() for word in wanted}
    return {number: word for number, word in known.items() if not wanted or word.lower() in lowered}


def check_words(encoder: Encoder, texts: Sequence[str], wanted: Sequence[str], longest: int) -> None:
    """Refuse a word that no sentence has."""
    known = {word.lower() for text in texts for word in words_of(encoder, text, longest).values()}
    for word in wanted:
        if word.lower() not in known:
            raise BermoError(f'No sentence has the word "{word[:40]}".{nearest(word.lower(), sorted(known))}')


def nearest_contexts(
    encoder: Encoder,
    text: str,
    corpus: Sequence[str],
    wanted: Sequence[str],
    layer: int,
    longest: int,
) -> tuple[Context, ...]:
    """Return the nearest uses in the corpus of each word; the sentence itself is left out."""
    chosen = choose_words(encoder, text, wanted, longest)
    if not chosen:
        return ()
    _, positions, own = next(_vectors(encoder, [text], layer, longest))
    rows = [positions.index(number) for number in chosen]
    asked = normalize(own[rows], dim=-1)
    others = [other for other in corpus if other != text]
    best: list[list[tuple[float, int, int]]] = [[] for _ in chosen]
    for texts, places, vectors in _vectors(encoder, others, layer, longest):
        cosines = asked @ normalize(vectors, dim=-1).T
        top = cosines.topk(min(NEAREST, cosines.shape[1]), dim=1)
        for k, (values, indices) in enumerate(zip(*top, strict=True)):
            found = [(float(v), texts[i], places[i]) for v, i in zip(values, indices.tolist(), strict=True)]
            best[k] = heapq.nlargest(NEAREST, best[k] + found)
    return tuple(
        _context(encoder, word, others[row], position, cosine, longest)
        for word, found in zip(chosen.values(), best, strict=True)
        for cosine, row, position in found
    )


def _vectors(
    encoder: Encoder, texts: Sequence[str], layer: int, longest: int
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], Tensor]]:
    """Yield which texts and which of their words, and the vectors of these, a batch at a time."""
    for batch in stream_vectors(encoder, texts, layers=(layer,), max_length=longest):
        words = pool_words(batch)
        if words.rows:
            yield words.rows, words.positions, words.vectors[0].float().cpu()
        else:
            yield (), (), torch.zeros(0, encoder.hidden_size)


def _context(encoder: Encoder, word: str, text: str, position: int, cosine: float, longest: int) -> Context:
    start, end = word_spans(encoder, text, longest)[position]
    before, after = text[max(0, start - AROUND) : start], text[end : end + AROUND]
    around = f"{'…' * (start > AROUND)}{before}«{text[start:end]}»{after}{'…' * (end + AROUND < len(text))}"
    return Context(word=word, cosine=cosine, found=text[start:end], text=around)


def word_spans(encoder: Encoder, text: str, longest: int) -> dict[int, tuple[int, int]]:
    """Return where each word of a text begins and ends."""
    batch = encoder.tokenizer(text, truncation=True, max_length=longest, verbose=False)
    spans: dict[int, tuple[int, int]] = {}
    for number, span in zip(batch.word_ids(), batch.encodings[0].offsets, strict=True):
        if number is not None:
            start, end = spans.get(number, span)
            spans[number] = (min(start, span[0]), max(end, span[1]))
    return spans
