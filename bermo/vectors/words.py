"""One vector a word for every layer, of sentences that are split into words, in one pass over all layers.

    mean    the mean of the vectors of a word's pieces
    first   the vector of its first piece

Axes: L layers, W words of all sentences, D hidden units.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from bermo.errors import BermoError
from bermo.nn.words import membership, pool_words
from bermo.progress import Display, Quiet, counted
from bermo.spec import Pieces, Precision
from bermo.vectors.encoder import Encoder
from bermo.vectors.stream import TokenVectors, stream_vectors


@dataclass(frozen=True, kw_only=True, eq=False)
class WordVectors:
    """The words of all sentences, end to end: vectors (L, W, D) in half precision, on the CPU."""

    vectors_LWD: Tensor
    starts: tuple[int, ...]
    """Where each sentence begins, and last the number of all words."""
    is_read_W: Tensor
    """Not read: words beyond the encoder's longest text, and words without a piece."""


def word_vectors(
    encoder: Encoder,
    sentences: Sequence[Sequence[str]],
    *,
    layers: Sequence[int],
    with_mix: bool = False,
    pieces: Pieces = "mean",
    max_length: int = 128,
    batch_size: int = 64,
    precision: Precision = "fp32",
    display: Display | None = None,
) -> WordVectors:
    """Read the vectors of every word at the layers, and of the mix last if it is asked for."""
    starts = (0, *accumulate(map(len, sentences)))
    shape = (len(layers) + with_mix, starts[-1], encoder.hidden_size)
    vectors_LWD = torch.zeros(shape, dtype=torch.float16)
    is_read_W = torch.zeros(starts[-1], dtype=torch.bool)
    with counted(display or Quiet(), "reading layers", len(sentences)) as advance:
        for batch in stream_vectors(
            encoder,
            [list(sentence) for sentence in sentences],
            layers=layers,
            with_mix=with_mix,
            max_length=max_length,
            batch_size=batch_size,
            precision=precision,
        ):
            pooled_LBWD, has_BW = pool_batch(batch, pieces)
            text, word = has_BW.nonzero(as_tuple=True)
            begins = torch.tensor([starts[row] for row in batch.rows.tolist()])
            places = begins[text] + word
            vectors_LWD[:, places] = pooled_LBWD[:, text, word].to(torch.float16)
            is_read_W[places] = True
            advance(len(batch.rows))
    if not bool(torch.isfinite(vectors_LWD).all()):
        raise BermoError(f'Some vectors of "{encoder.name}" are not finite numbers of float16.')
    return WordVectors(vectors_LWD=vectors_LWD, starts=starts, is_read_W=is_read_W)


def pool_batch(batch: TokenVectors, pieces: Pieces) -> tuple[Tensor, Tensor]:
    """Return the vectors of a batch's words, (L, B, W, D), and which there are, (B, W); on the CPU."""
    words_BT = torch.where(batch.is_special, -1, batch.word_of)
    is_in_BWT = membership(words_BT, max(1, int(words_BT.max()) + 1))
    has_BW = is_in_BWT.any(-1)
    if pieces == "first":
        is_in_BWT = is_in_BWT & (is_in_BWT.cumsum(-1) == 1)
    pooled = torch.stack([pool_words(hidden.float(), is_in_BWT) for hidden in batch.vectors])
    return pooled.cpu(), has_BW.cpu()
