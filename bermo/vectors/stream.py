"""The vectors of every token in every layer, a batch at a time, in bounded memory.

Texts of like length share a batch, within a window; `rows` says which text each row of a batch is. Only the
current batch is held, and the tokens of the next window, which are made while this one is read.

Axes: B texts of a batch, T tokens, D hidden units; the embeddings' output is layer 0.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bermo.data.batches import bucket
from bermo.data.rows import check_several
from bermo.data.tokens import drops_spaces
from bermo.data.unknown import check_ids
from bermo.encoders.backbone import make_inputs, visit
from bermo.encoders.families import has_segments
from bermo.errors import BermoError
from bermo.spec import Precision
from bermo.vectors.encoder import Encoder, check_encoder

WINDOW_BATCHES = 32
"""Batches that are tokenised and sorted by length together: long enough that a batch has little padding."""

Text: TypeAlias = str | Sequence[str]
"""A text, or its words; then `word_of` counts these."""


@dataclass(frozen=True, kw_only=True)
class TokenVectors:
    """A batch: `vectors` holds (B, T, D) for each of `layers`, then the mix if it was asked for.

    Tensors stay on the encoder's device: take to the CPU only what is kept.
    """

    rows: npt.NDArray[np.int64]
    """Which text each row of the batch is, counted over the whole stream."""
    layers: tuple[int, ...]
    input_ids: Tensor
    is_token: Tensor
    """No padding."""
    is_special: Tensor
    """Tokens that the tokenizer added, and padding."""
    word_of: Tensor
    """The word that a token is a piece of, counted in its text; −1 where it is special."""
    vectors: tuple[Tensor, ...]


@dataclass(frozen=True)
class _Tokens:
    """Token lists of a window of texts, and what each token is."""

    ids: list[list[int]]
    segments: list[list[int]] | None
    special: list[list[int]] | None
    words: list[list[int]] | None


def stream_vectors(
    encoder: Encoder,
    texts: Iterable[Text],
    *,
    layers: Sequence[int] | None = None,
    with_mix: bool = False,
    max_length: int = 128,
    batch_size: int = 32,
    precision: Precision = "fp32",
) -> Iterator[TokenVectors]:
    """Yield the vectors of every token of the texts, a batch at a time, on the encoder's device.

    >>> encoder = bermo.load_encoder("box")
    >>> batch = next(bermo.stream_vectors(encoder, ["a fine film"]))
    >>> len(batch.vectors), batch.vectors[0].shape
    (7, torch.Size([1, 5, 224]))
    """
    check_encoder(encoder)
    check_several(texts)
    wanted = _wanted(encoder, layers, with_mix)
    for batch in batches(encoder, texts, max_length, batch_size):
        vectors = forward(encoder, batch, wanted, with_mix, precision, lambda hidden: hidden)
        is_token = batch.mask.bool()
        assert batch.special is not None
        assert batch.word_of is not None
        yield TokenVectors(
            rows=batch.rows,
            layers=wanted,
            input_ids=batch.input_ids,
            is_token=is_token,
            is_special=batch.special.bool() | ~is_token,
            word_of=batch.word_of,
            vectors=tuple(vectors),
        )


@dataclass(frozen=True)
class Batch:
    """Padded ids on the encoder's device, and what each token is."""

    rows: npt.NDArray[np.int64]
    input_ids: Tensor
    mask: Tensor
    segments: Tensor | None
    special: Tensor | None
    word_of: Tensor | None

    def inputs(self) -> dict[str, Tensor]:
        """The arguments of a model's call."""
        named = {
            "input_ids": self.input_ids,
            "attention_mask": self.mask,
            "token_type_ids": self.segments,
        }
        return {name: tensor for name, tensor in named.items() if tensor is not None}


def batches(
    encoder: Encoder,
    texts: Iterable[Text],
    max_length: int,
    batch_size: int,
    with_words: bool = True,
) -> Iterator[Batch]:
    """Cut the texts into batches of like length; the next window is tokenised while this one is read."""
    source, start = iter(texts), 0
    limit = min(max_length, encoder.tokenizer.model_max_length)

    def take() -> _Tokens | None:
        window = list(islice(source, batch_size * WINDOW_BATCHES))
        return _tokenise(encoder, window, limit, with_words) if window else None

    with ThreadPoolExecutor(1) as ahead:
        coming = ahead.submit(take)
        while (tokens := coming.result()) is not None:
            coming = ahead.submit(take)
            lengths = np.array([len(ids) for ids in tokens.ids])
            order = np.argsort(-lengths, kind="stable")
            for begin in range(0, len(order), batch_size):
                rows = order[begin : begin + batch_size]
                yield _collate(encoder, tokens, rows, start)
            start += len(order)


def _tokenise(encoder: Encoder, window: Sequence[Text], limit: int, with_words: bool) -> _Tokens:
    tokenizer, is_split = encoder.tokenizer, not isinstance(window[0], str)
    given: list[Any] = list(window)
    if is_split and drops_spaces(tokenizer):
        given = [[f" {word}" for word in text] for text in given]
    tokens = tokenizer(
        given,
        is_split_into_words=is_split,
        truncation=True,
        max_length=limit,
        verbose=False,
        return_attention_mask=False,
        return_special_tokens_mask=with_words,
        return_token_type_ids=has_segments(encoder.backbone.config),
    )
    largest = max((max(ids, default=0) for ids in tokens["input_ids"]), default=0)
    check_ids(largest, int(encoder.backbone.config.vocab_size), tokenizer)
    segments = tokens.get("token_type_ids")
    if not with_words:
        return _Tokens(tokens["input_ids"], segments, None, None)
    assert tokens.encodings is not None, "a fast tokenizer gives its encodings"
    words = [[-1 if word is None else word for word in e.word_ids] for e in tokens.encodings]
    return _Tokens(tokens["input_ids"], segments, tokens["special_tokens_mask"], words)


def _collate(encoder: Encoder, tokens: _Tokens, rows: npt.NDArray[np.int64], start: int) -> Batch:
    """Pad the rows on the tokenizer's side and send them to the device."""
    tokenizer, device = encoder.tokenizer, encoder.device
    lengths = np.array([len(tokens.ids[row]) for row in rows])
    width = max(1, int(lengths.max()))
    if device.type == "cuda":
        # Few shapes, so that graphs of them come again.
        width = max(width, min(bucket(width), tokenizer.model_max_length))
    columns = np.arange(width)[None, :]
    is_token = columns < lengths[:, None]
    if tokenizer.padding_side == "left":
        is_token = is_token[:, ::-1]

    def send(values: npt.NDArray[np.int64]) -> Tensor:
        tensor = torch.from_numpy(values)
        if device.type == "cuda":
            return tensor.pin_memory().to(device, non_blocking=True)
        return tensor

    def pad(lists: list[list[int]] | None, fill: int) -> Tensor | None:
        if lists is None:
            return None
        padded = np.full(is_token.shape, fill, dtype=np.int64)
        padded[is_token] = np.fromiter(chain.from_iterable(lists[row] for row in rows), np.int64)
        return send(padded)

    ids = pad(tokens.ids, tokenizer.pad_token_id)
    assert ids is not None
    return Batch(
        rows=rows + start,
        input_ids=ids,
        mask=send(is_token.astype(np.int64)),
        segments=pad(tokens.segments, tokenizer.pad_token_type_id),
        special=pad(tokens.special, 1),
        word_of=pad(tokens.words, -1),
    )


@torch.inference_mode()
def forward(
    encoder: Encoder,
    batch: Batch,
    wanted: Sequence[int],
    with_mix: bool,
    precision: Precision,
    keep: Callable[[Tensor], Tensor],
) -> list[Tensor]:
    """Run the encoder once; of each wanted layer, and of the mix, keep what `keep` makes of it."""
    inputs = make_inputs(encoder.backbone, batch.input_ids, batch.mask, batch.segments, None)
    kept: dict[int, Tensor] = {}
    mixing = encoder.mix.stream(batch.mask) if with_mix and encoder.mix is not None else None

    def see(index: int, hidden: Tensor) -> None:
        if index in wanted:
            kept[index] = keep(hidden)
        if mixing is not None:
            mixing.add(index, hidden)

    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    visited = set(wanted) | set(encoder.mix.layers if with_mix and encoder.mix is not None else ())
    with torch.autocast(encoder.device.type, dtype=half, enabled=half is not None):
        visit(encoder.backbone, inputs, visited, see)
    layers = [kept[index] for index in wanted]
    return layers if mixing is None else [*layers, keep(mixing.result())]


def _wanted(encoder: Encoder, layers: Sequence[int] | None, with_mix: bool) -> tuple[int, ...]:
    count = encoder.num_layers
    if with_mix and encoder.mix is None:
        raise BermoError(f'"{encoder.name}" has no mix. Leave with_mix out, or load a mixed model.')
    wanted = tuple(range(count)) if layers is None else tuple(layers)
    for layer in wanted:
        if not -count <= layer < count:
            raise BermoError(f"Layer {layer} was asked for, but there are 0 to {count - 1}.")
    return tuple(layer % count for layer in wanted)
