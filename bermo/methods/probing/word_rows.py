"""The vectors of labelled spans of words: a word, the mean of several, or a word beside its head.

Axes: L layers, N labelled spans, W words, D units; a span with a head has 2·D.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bermo.data.word_tasks import Labelled, Span, WordData, WordSource
from bermo.errors import BermoError
from bermo.methods.probing.spec import ProbeSpec
from bermo.progress import Display
from bermo.vectors import Encoder
from bermo.vectors.words import WordVectors, word_vectors


@dataclass(frozen=True, kw_only=True, eq=False)
class ReadSource:
    """The vectors of all words of a source, and which sentence each part begins with."""

    words: WordVectors
    firsts: tuple[int, int, int]

    @property
    def num_unread(self) -> int:
        """Words beyond the encoder's longest text, or without a piece."""
        return int((~self.words.is_read_W).sum())


def read_source(
    encoder: Encoder, source: WordSource, names: Sequence[str], spec: ProbeSpec, display: Display
) -> ReadSource:
    """Read the vectors of a source's words at the named layers, in one pass."""
    sentences = [sentence for part in source.words for sentence in part]
    layers = [int(name) for name in names if name.isdigit()]
    words = word_vectors(
        encoder,
        sentences,
        layers=layers,
        with_mix=len(layers) < len(names),
        pieces=spec.pieces,
        max_length=spec.max_length,
        batch_size=spec.batch_size,
        precision=spec.precision,
        display=display,
    )
    train, dev = (len(part) for part in source.parts[:2])
    return ReadSource(words=words, firsts=(0, train, train + dev))


def kept_data(data: WordData, read: ReadSource) -> WordData:
    """Return the task without the spans of which a word was not read; a part that loses all is an error."""
    parts = [_kept(part, read, first) for part, first in zip(data.parts, read.firsts, strict=True)]
    if not all(map(len, parts)):
        raise BermoError(
            f"{data.task}: none of a part's labelled words stands within the first tokens that the encoder"
            " reads of a sentence. Cut the sentences, or give a model that reads longer ones."
        )
    return replace(data, parts=(parts[0], parts[1], parts[2]))


def _kept(part: Labelled, read: ReadSource, first: int) -> Labelled:
    is_read, starts = read.words.is_read_W.tolist(), read.words.starts

    def whole(at: int) -> bool:
        begin = starts[first + part.sentences[at]]
        spans = [part.spans[at], *([part.heads[at]] if part.heads else [])]
        return all(is_read[begin + word] for span in spans for word in range(*span))

    at = [k for k in range(len(part)) if whole(k)]
    return Labelled(
        sentences=tuple(part.sentences[k] for k in at),
        spans=tuple(part.spans[k] for k in at),
        heads=tuple(part.heads[k] for k in at) if part.heads else None,
        labels=tuple(part.labels[k] for k in at),
        keys=tuple(part.keys[k] for k in at),
    )


def stacked_rows(data: WordData, read: ReadSource) -> list[Tensor]:
    """Return the vectors of the spans of each part, (L, N, D) or (L, N, 2·D), in half precision."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = []
    for part, first in zip(data.parts, read.firsts, strict=True):
        begins = [read.words.starts[first + number] for number in part.sentences]
        ends = [_spans_mean(read.words.vectors_LWD, begins, part.spans)]
        if part.heads:
            ends.append(_spans_mean(read.words.vectors_LWD, begins, part.heads))
        rows.append(torch.cat(ends, -1).to(device))
    return rows


def _spans_mean(vectors_LWD: Tensor, begins: Sequence[int], spans: Sequence[Span]) -> Tensor:
    """Return the mean of the words of each span, (L, N, D)."""
    firsts = torch.tensor([begin + start for begin, (start, _) in zip(begins, spans, strict=True)])
    sizes = torch.tensor([end - start for start, end in spans])
    if bool((sizes == 1).all()):
        return vectors_LWD[:, firsts]
    span = torch.repeat_interleave(torch.arange(len(spans)), sizes)
    inside = torch.arange(len(span)) - torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)
    words = firsts[span] + inside
    means = torch.empty(len(vectors_LWD), len(spans), vectors_LWD.shape[-1], dtype=vectors_LWD.dtype)
    for layer, vectors_WD in enumerate(vectors_LWD):
        sums = torch.zeros(len(spans), vectors_WD.shape[-1])
        sums.index_add_(0, span, vectors_WD[words].float())
        means[layer] = (sums / sizes[:, None]).to(means.dtype)
    return means
