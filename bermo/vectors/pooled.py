"""One vector a text for every layer, pooled on the device while the encoder runs, and kept on disk.

The cache is named by content: the encoder's weights and tokenizer, the pooling, the texts. It is cut into
shards, so that a stopped extraction goes on where it was.

Axes: N texts, D hidden units.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bermo.data.cache import Writer, open_cache, read_cache
from bermo.data.rows import check_several
from bermo.encoders.position_bias import set_position_bias_
from bermo.errors import BermoError, nearest
from bermo.files import cache_root
from bermo.nn.fast.replay import Function, Replays, fused_attention
from bermo.nn.heads import masked_mean, pooled_rows, take_rows
from bermo.progress import Display, Quiet
from bermo.spec import POOLINGS, Pooling, Precision
from bermo.vectors.encoder import Encoder, check_encoder
from bermo.vectors.stream import Batch, Text, batches, forward

FORMAT = 1
SHARD = 8192
"""Texts a file; what is done of a stopped extraction is kept in whole shards."""
MIXED = "mix"
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}

Dtype: TypeAlias = Literal["float16", "float32"]


@dataclass(frozen=True, kw_only=True)
class TextVectors:
    """One vector a text, for each layer and the mix, memory-mapped in shards."""

    names: tuple[str, ...]
    """"0" … "12" for the layers, then "mix" where the encoder has one."""
    num_texts: int
    shards: tuple[tuple[npt.NDArray[Any], ...], ...]

    def __len__(self) -> int:
        return self.num_texts

    def read(self, name: str) -> npt.NDArray[Any]:
        """Return (N, D): the vectors of one layer, or of the mix, in the order of the texts."""
        if name not in self.names:
            raise BermoError(f'There are no vectors of layer "{name}".{nearest(name, self.names)}')
        index = self.names.index(name)
        return np.concatenate([shard[index] for shard in self.shards])


@dataclass(frozen=True, kw_only=True)
class _Reading:
    """How texts are read."""

    pooling: Pooling
    max_length: int
    batch_size: int
    precision: Precision
    dtype: Dtype


def text_vectors(
    encoder: Encoder,
    texts: Sequence[Text],
    *,
    pooling: Pooling | None = None,
    max_length: int = 128,
    batch_size: int = 64,
    precision: Precision = "fp32",
    dtype: Dtype = "float16",
    cache: str | None = None,
    display: Display | None = None,
) -> TextVectors:
    """Return one vector a text for each layer and the mix, computing the shards that the cache has not.

    >>> encoder = bermo.load_encoder("box")
    >>> vectors = bermo.text_vectors(encoder, ["a fine film", "a dull one"], cache="vectors")
    >>> vectors.read(vectors.names[-1]).shape
    (2, 224)
    """
    check_encoder(encoder)
    check_several(texts)
    if not len(texts):
        raise BermoError("There are no texts to read vectors from.")
    names = tuple(map(str, range(encoder.num_layers))) + ((MIXED,) if encoder.mix else ())
    reading = _Reading(
        pooling=pooling or encoder.pooling,
        max_length=max_length,
        batch_size=batch_size,
        precision=precision,
        dtype=dtype,
    )
    _check_pooling(reading.pooling)
    root, display = cache_root(cache) / "vectors", display or Quiet()
    starts = range(0, len(texts), SHARD)
    folders = [root / _key(encoder, reading, texts[begin : begin + SHARD]) for begin in starts]
    if any(read_cache(folder) is None for folder in folders):
        display.start("reading layers", len(texts), 0)
        try:
            _fill(encoder, texts, reading, dict(zip(starts, folders, strict=True)), names, display)
        finally:
            display.close()
    caches = [read_cache(folder) for folder in folders]
    shards = [tuple(cache.arrays[_file(n)] for n in names) for cache in caches if cache is not None]
    return TextVectors(names=names, num_texts=len(texts), shards=tuple(shards))


def _fill(
    encoder: Encoder,
    texts: Sequence[Text],
    reading: _Reading,
    folders: Mapping[int, Path],
    names: Sequence[str],
    display: Display,
) -> None:
    """Compute the shards that are missing; one is written while the next is computed."""
    writing: Future[None] | None = None
    read = _reader(encoder, reading)
    with ThreadPoolExecutor(1) as writer:
        for begin, folder in folders.items():
            shard = texts[begin : begin + SHARD]
            if read_cache(folder) is None:
                arrays = _read_shard(encoder, shard, reading, read, begin, display)
                _join(writing)
                writing = writer.submit(_write, folder, names, arrays)
            display.step(begin + len(shard), None)
        _join(writing)


def _reader(encoder: Encoder, reading: _Reading) -> Function:
    """Return the function from a batch to the vectors of its texts, (B, D) a layer and the mix; on a GPU by
    graphs.
    """
    wanted, with_mix = tuple(range(encoder.num_layers)), encoder.mix is not None

    def read(inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        batch = Batch(np.empty(0, np.int64), ids, mask, inputs.get("token_type_ids"), None, None)
        pool = _pool(reading.pooling, mask)
        return tuple(forward(encoder, batch, wanted, with_mix, reading.precision, pool))

    if encoder.device.type != "cuda":
        return read
    set_position_bias_(encoder.backbone)
    return Replays(read, encoder.device, DTYPES[reading.precision], fused_attention)


def _read_shard(
    encoder: Encoder, texts: Sequence[Text], reading: _Reading, read: Function, begin: int, display: Display
) -> list[npt.NDArray[Any]]:
    """Return the pooled vectors of one shard, (N, D) a layer; they leave the device once, at the end."""
    num_layers, with_mix, done = encoder.num_layers, encoder.mix is not None, begin
    dtype = getattr(torch, reading.dtype)
    shape = (num_layers, len(texts), encoder.hidden_size)
    layers_LND = torch.empty(shape, dtype=dtype, device=encoder.device)
    width = encoder.mix.output_size(encoder.hidden_size) if encoder.mix is not None else 0
    mixed_ND = torch.empty(len(texts), width, dtype=dtype, device=encoder.device)
    for batch in batches(encoder, texts, reading.max_length, reading.batch_size, with_words=False):
        vectors = read(batch.inputs())
        rows = torch.from_numpy(batch.rows).to(encoder.device, non_blocking=True)
        layers_LND[:, rows] = torch.stack(vectors[:num_layers]).to(dtype)
        if with_mix:
            mixed_ND[rows] = vectors[-1].to(dtype)
        done += len(batch.rows)
        display.step(done, None)
    if not all(bool(torch.isfinite(item).all()) for item in (layers_LND, mixed_ND)):
        raise BermoError(
            f'Some vectors of "{encoder.name}" are not finite numbers of {reading.dtype}. Ask for'
            ' dtype="float32", or precision="fp32" where another was asked for.'
        )
    arrays = list(layers_LND.cpu().numpy())
    return [*arrays, mixed_ND.cpu().numpy()] if with_mix else arrays


def _check_pooling(pooling: Pooling) -> None:
    if pooling not in POOLINGS:
        raise BermoError(f'There is no pooling "{pooling}".{nearest(pooling, POOLINGS)}')


def _pool(pooling: Pooling, mask_BT: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the function from a layer to one vector a text; the tokens are chosen once for all layers."""
    if pooling == "mean":
        return lambda hidden: masked_mean(hidden.float(), mask_BT)
    rows = pooled_rows(pooling, mask_BT)
    return lambda hidden: take_rows(hidden, rows)[:, 0]


def _write(folder: Path, names: Sequence[str], arrays: Sequence[npt.NDArray[Any]]) -> None:
    def build(writer: Writer) -> dict[str, Any]:
        writer.append({_file(name): array for name, array in zip(names, arrays, strict=True)})
        return {"layers": list(names)}

    open_cache(folder, build)


def _file(name: str) -> str:
    return f"layer_{name}"


def _join(writing: "Future[None] | None") -> None:
    if writing is not None:
        writing.result()


def _key(encoder: Encoder, reading: _Reading, texts: Sequence[Text]) -> str:
    # Batches of another size give the same vectors but for rounding, so they are not part of the name.
    parts = [reading.pooling, reading.max_length, reading.precision, reading.dtype]
    content = json.dumps([FORMAT, encoder.fingerprint, parts, list(texts)])
    return hashlib.sha256(content.encode()).hexdigest()[:32]
