"""A matrix with many zeros in few bytes: the positions of the kept weights, and their values.

    positions   a bit for each weight, or the gaps between kept ones, a byte each; the shorter after entropy
    coding values      fp32 or fp16 as they are, or int8 with a scale for each row; first bytes, then second
    ones, then coded; or a symbol for the nearest of 8 or 16 centroids, with outliers (centroids.py);
    or a whole number in the range of a group of rows (groups.py)

At density d the positions cost H(d) bits a weight at best (0.47 at 10 %). DEFLATE in its Huffman-only form
comes within 2 % of that on gaps, which follow a geometric law.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from bermo.errors import BermoError
from bermo.ship.runtimes.centroids import Coded, code
from bermo.ship.runtimes.groups import Grouped, group

Coding = Literal["fp32", "fp16", "int8", "gobo3", "gobo4", "groups2", "groups3", "groups8"]
BITS: Mapping[Coding, int] = {"gobo3": 3, "gobo4": 4}
GROUP_BITS: Mapping[Coding, int] = {"groups2": 2, "groups3": 3, "groups8": 8}
Bytes = npt.NDArray[np.uint8]
LARGEST_GAP = 255
"""A gap byte of this value adds so much and says that more follows."""
LEVEL = 9


@dataclass(frozen=True, kw_only=True)
class Packed:
    """A matrix in parts; `positions` and `codes` are streams of bytes. `scales` belong to int8; of centroids
    they are these, and then the outliers; of groups their least values, and then their steps.
    """

    rows: int
    columns: int
    positions_form: Literal["bits", "gaps"]
    positions: Bytes
    values: Coding
    codes: Bytes
    scales: npt.NDArray[np.float32] | None = None

    @property
    def num_bytes(self) -> int:
        scales = 0 if self.scales is None else self.scales.nbytes
        return self.positions.nbytes + self.codes.nbytes + scales


def pack(weights: npt.NDArray[np.float32], values: Coding) -> Packed:
    """Pack a matrix; what is zero, or becomes zero in the asked precision, is left out."""
    rows, columns = weights.shape
    scales = None
    if values in BITS:
        return _pack_centroids(weights, values)
    if values in GROUP_BITS:
        return _pack_groups(weights, values)
    if values == "int8":
        scales = (np.abs(weights).max(axis=1) / 127).astype(np.float32)
        coded = np.rint(weights / np.where(scales, scales, 1)[:, None]).astype(np.int8)
    else:
        coded = weights.astype({"fp32": np.float32, "fp16": np.float16}[values])
    if not np.isfinite(coded).all():
        raise BermoError(
            f"A weight of {np.abs(weights).max():.3g} does not fit {values}. Choose --values fp32."
        )
    kept = np.flatnonzero(coded)
    form, positions = _shorter(kept, weights.size)
    stream = _coded(coded.reshape(-1)[kept])
    return Packed(
        rows=rows,
        columns=columns,
        positions_form=form,
        positions=positions,
        values=values,
        codes=stream,
        scales=scales,
    )


def _pack_centroids(weights: npt.NDArray[np.float32], values: Coding) -> Packed:
    kept = np.flatnonzero(weights)
    form, positions = _shorter(kept, weights.size)
    coded = code(weights.reshape(-1)[kept], BITS[values])
    return Packed(
        rows=weights.shape[0],
        columns=weights.shape[1],
        positions_form=form,
        positions=positions,
        values=values,
        codes=_deflated(coded.symbols),
        scales=np.concatenate([coded.centroids, coded.outliers]),
    )


def _pack_groups(weights: npt.NDArray[np.float32], values: Coding) -> Packed:
    kept = np.flatnonzero(weights)
    form, positions = _shorter(kept, weights.size)
    rows, columns = weights.shape
    coded = group(weights.reshape(-1)[kept], kept // columns, rows, GROUP_BITS[values])
    return Packed(
        rows=rows,
        columns=columns,
        positions_form=form,
        positions=positions,
        values=values,
        codes=_deflated(coded.codes),
        scales=np.concatenate([coded.lows, coded.steps]),
    )


def unpack(packed: Packed) -> npt.NDArray[np.float32]:
    """Return the matrix that `pack` was given, in the precision it was asked for."""
    size = packed.rows * packed.columns
    kept = _positions(packed, size)
    if packed.values in BITS:
        return _unpack_centroids(packed, kept)
    if packed.values in GROUP_BITS:
        return _unpack_groups(packed, kept)
    dtype = {"fp32": np.float32, "fp16": np.float16, "int8": np.int8}[packed.values]
    flat = np.zeros(size, dtype=np.float32)
    flat[kept] = _decoded(packed.codes, np.dtype(dtype), len(kept)).astype(np.float32)
    weights = flat.reshape(packed.rows, packed.columns)
    return weights if packed.scales is None else weights * packed.scales[:, None]


def _unpack_centroids(packed: Packed, kept: npt.NDArray[np.intp]) -> npt.NDArray[np.float32]:
    count = 1 << BITS[packed.values]
    scales = np.zeros(0, dtype=np.float32) if packed.scales is None else packed.scales
    symbols = _inflated(packed.codes, most=len(kept))
    coded = Coded(centroids=scales[:count], symbols=symbols, outliers=scales[count:])
    flat = np.zeros(packed.rows * packed.columns, dtype=np.float32)
    flat[kept] = coded.values()
    return flat.reshape(packed.rows, packed.columns)


def _unpack_groups(packed: Packed, kept: npt.NDArray[np.intp]) -> npt.NDArray[np.float32]:
    scales = np.zeros(0, dtype=np.float32) if packed.scales is None else packed.scales
    lows, steps = np.split(scales, 2)
    coded = Grouped(lows=lows, steps=steps, codes=_inflated(packed.codes, most=len(kept)))
    flat = np.zeros(packed.rows * packed.columns, dtype=np.float32)
    flat[kept] = coded.values(kept // packed.columns, packed.rows)
    return flat.reshape(packed.rows, packed.columns)


def _shorter(kept: npt.NDArray[np.intp], size: int) -> tuple[Literal["bits", "gaps"], Bytes]:
    bits = np.zeros(size, dtype=bool)
    bits[kept] = True
    as_bits, as_gaps = _deflated(np.packbits(bits)), _deflated(_gaps(kept))
    return ("bits", as_bits) if as_bits.nbytes <= as_gaps.nbytes else ("gaps", as_gaps)


def _gaps(kept: npt.NDArray[np.intp]) -> Bytes:
    """Write the steps from one kept position to the next, each as 255 · n and a rest below 255."""
    steps = np.diff(kept, prepend=-1) - 1
    whole, rest = steps // LARGEST_GAP, steps % LARGEST_GAP
    ends = np.cumsum(whole + 1) - 1
    stream = np.full(int(ends[-1]) + 1 if len(ends) else 0, LARGEST_GAP, dtype=np.uint8)
    stream[ends] = rest
    return stream


def _positions(packed: Packed, size: int) -> npt.NDArray[np.intp]:
    is_bits = packed.positions_form == "bits"
    # A gap byte moves on by one at least.
    stream = _inflated(packed.positions, most=-(-size // 8) if is_bits else size)
    if is_bits:
        return np.flatnonzero(np.unpackbits(stream, count=size))
    moved = np.cumsum(stream.astype(np.int64) + (stream < LARGEST_GAP))
    positions: npt.NDArray[np.intp] = moved[stream < LARGEST_GAP] - 1
    return positions


def _coded(values: npt.NDArray[np.generic]) -> Bytes:
    """Put the first bytes of all values side by side, then the second, and so on: signs and exponents
    repeat.
    """
    return _deflated(values.view(np.uint8).reshape(-1, values.itemsize).T.reshape(-1))


def _decoded(stream: Bytes, dtype: np.dtype[np.generic], count: int) -> npt.NDArray[np.generic]:
    ranks = _inflated(stream, most=dtype.itemsize * count).reshape(dtype.itemsize, count)
    return np.ascontiguousarray(ranks.T).reshape(-1).view(dtype)


def _deflated(values: Bytes) -> Bytes:
    """Return the shorter of two codings: Huffman alone (random positions), or with repeats (blocks, whole
    rows).
    """
    raw = np.ascontiguousarray(values).tobytes()
    streams = []
    for strategy in (zlib.Z_HUFFMAN_ONLY, zlib.Z_DEFAULT_STRATEGY):
        coder = zlib.compressobj(LEVEL, zlib.DEFLATED, zlib.MAX_WBITS, 9, strategy)
        streams.append(coder.compress(raw) + coder.flush())
    return np.frombuffer(min(streams, key=len), dtype=np.uint8)


def _inflated(stream: Bytes, most: int) -> Bytes:
    """Return the bytes of a whole stream, which are no more than the matrix has room for."""
    coder = zlib.decompressobj()
    # One more than allowed, since 0 would mean without end.
    raw = coder.decompress(stream.tobytes(), most + 1)
    if len(raw) > most or not coder.eof:
        raise ValueError(f"a stream of at most {most} bytes is longer, or cut")
    return np.frombuffer(raw, dtype=np.uint8)
