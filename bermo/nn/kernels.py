"""Triton kernels over many tensors in one launch, for graphics cards. Each has a twin in plain torch, named beside it.

    choose_     exactly k of the highest scores of each segment, without sorting      twin: nn.masks.top_masks
    mask_copy_  W̃ = M ⊙ W in the working dtype                                       twin: Shadow's loop
    mask_grads_ dW = M ⊙ G and dS = G ⊙ W                                            twin: Shadow's loop

The k-th score is found digit by digit (radix select): a float's bits, made to rise with its value, are counted by their highest
digit; the digit that holds the k-th is kept, and the next one is counted among the scores that share it. Six passes of 5 or 6 bits
read the scores: with 64 bins a pass costs its bytes and no more. The last one also counts chunk by chunk, so that among equals the first
by place are kept.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

CHUNK = 8192
DIGITS = ((26, 6), (20, 6), (15, 5), (10, 5), (5, 5), (0, 5))  # shift and width in bits


@triton.jit
def _rising(value, SIZES: tl.constexpr):
    """Bits that rise with the value, as an unsigned number; of |value| if SIZES."""
    if SIZES:
        bits = tl.abs(value).to(tl.int32, bitcast=True)
        return bits.to(tl.uint32, bitcast=True)
    value = tl.where(value == 0, 0.0, value)  # −0 and 0 are equals
    bits = value.to(tl.int32, bitcast=True)
    flipped = tl.where(bits < 0, ~bits, bits | -2147483648)
    return flipped.to(tl.uint32, bitcast=True)


@triton.jit
def _places(tensors, starts, sizes, EVEN: tl.constexpr, LENGTH: tl.constexpr):
    """This program's chunk: the number of its tensor, its places in it, and which of them exist."""
    chunk = tl.program_id(0)
    tensor = tl.load(tensors + chunk)
    start, size = tl.load(starts + chunk), tl.load(sizes + tensor)
    if EVEN:  # lets the compiler load 16 bytes at a time
        start, size = tl.multiple_of(start, 16), tl.multiple_of(size, 16)
    places = start + tl.arange(0, LENGTH)
    return tensor, places, places < size


@triton.jit
def _at(table, tensor, EVEN: tl.constexpr):
    """The address of a tensor, from a table of addresses."""
    address = tl.load(table + tensor)
    if EVEN:
        address = tl.multiple_of(address, 16)
    return address


@triton.jit
def _scores(table, tensor, places, exists, EVEN: tl.constexpr):
    base = _at(table, tensor, EVEN).to(tl.pointer_type(tl.float32))
    return tl.load(base + places, mask=exists, other=0.0)


@triton.jit
def _count_digits(
    pointers, tensors, starts, sizes, segments, prefixes, counts, by_chunk,
    SHIFT: tl.constexpr, WIDTH: tl.constexpr, SIZES: tl.constexpr, EVEN: tl.constexpr,
    LENGTH: tl.constexpr,
):  # fmt: skip
    """Count the next digit of the scores that share the digits found so far; the last time, also chunk by chunk."""
    tensor, places, exists = _places(tensors, starts, sizes, EVEN, LENGTH)
    segment = tl.load(segments + tensor)
    key = _rising(_scores(pointers, tensor, places, exists, EVEN), SIZES)
    digit = ((key >> SHIFT) & (2**WIDTH - 1)).to(tl.int32)
    if SHIFT + WIDTH < 32:
        exists &= (key >> (SHIFT + WIDTH)) == tl.load(prefixes + segment).to(tl.uint32)
    found = tl.histogram(digit, 64, mask=exists)
    bins = tl.arange(0, 64)
    tl.atomic_add(counts + segment * 64 + bins, found, mask=found > 0)
    if SHIFT == 0:
        tl.store(by_chunk + tl.program_id(0) * 64 + bins, found)


@triton.jit
def _keep_digit(prefixes, missing, counts, WIDTH: tl.constexpr):
    """Find the digit of the k-th highest, and how many are still missing below the digits above it."""
    segment = tl.program_id(0)
    bins = tl.arange(0, 64)
    found = tl.load(counts + segment * 64 + bins)
    wanted = tl.load(missing + segment)
    at_least = tl.sum(found) - tl.cumsum(found) + found  # scores with this digit or a higher one
    digit = tl.max(tl.where((at_least >= wanted) & (bins < 2**WIDTH), bins, 0))
    above = tl.sum(tl.where(bins > digit, found, 0))
    tl.store(missing + segment, wanted - above)
    prefix = tl.load(prefixes + segment)
    tl.store(prefixes + segment, prefix * 2**WIDTH + digit)
    tl.store(counts + segment * 64 + bins, tl.zeros_like(found))


@triton.jit
def _write_masks(
    pointers, masks, tensors, starts, sizes, segments, prefixes,
    missing, before, first,
    SIZES: tl.constexpr, EVEN: tl.constexpr, LENGTH: tl.constexpr,
):  # fmt: skip
    tensor, places, exists = _places(tensors, starts, sizes, EVEN, LENGTH)
    segment = tl.load(segments + tensor)
    threshold = tl.load(prefixes + segment).to(tl.uint32)
    wanted = tl.load(missing + segment)
    # `before` counts the equals of all chunks; those of earlier segments do not matter.
    offset = tl.load(before + tl.program_id(0)) - tl.load(before + tl.load(first + segment))
    key = _rising(_scores(pointers, tensor, places, exists, EVEN), SIZES)
    is_equal = (key == threshold) & exists
    rank = offset + tl.cumsum(is_equal.to(tl.int32))
    kept = (key > threshold) | (is_equal & (rank <= wanted))
    target = _at(masks, tensor, EVEN).to(tl.pointer_type(tl.int8))
    tl.store(target + places, kept.to(tl.int8), mask=exists)


@triton.jit
def _copy_masked(
    weights, masks, copies, tensors, starts, sizes,
    HALF: tl.constexpr, EVEN: tl.constexpr, LENGTH: tl.constexpr,
):  # fmt: skip
    tensor, places, exists = _places(tensors, starts, sizes, EVEN, LENGTH)
    weight = _scores(weights, tensor, places, exists, EVEN)
    source = _at(masks, tensor, EVEN).to(tl.pointer_type(tl.int8))
    # A product and not a choice: where the mask is 0 the sign of zero is the twin's.
    masked = weight * tl.load(source + places, mask=exists, other=0).to(tl.float32)
    target = _at(copies, tensor, EVEN)
    if HALF:
        tl.store(
            target.to(tl.pointer_type(tl.bfloat16)) + places, masked.to(tl.bfloat16), mask=exists
        )
    else:
        tl.store(target.to(tl.pointer_type(tl.float32)) + places, masked, mask=exists)


@triton.jit
def _write_grads(
    weights, masks, grads, weight_grads, score_grads, offsets,
    tensors, starts, sizes,
    SCORED: tl.constexpr, EVEN: tl.constexpr, LENGTH: tl.constexpr,
):  # fmt: skip
    tensor, places, exists = _places(tensors, starts, sizes, EVEN, LENGTH)
    offset = tl.multiple_of(tl.load(offsets + tensor), 16)
    grad = tl.load(grads + offset + places, mask=exists, other=0.0).to(tl.float32)
    source = _at(masks, tensor, EVEN).to(tl.pointer_type(tl.int8))
    mask = tl.load(source + places, mask=exists, other=0).to(tl.float32)
    tl.store(weight_grads + offset + places, grad * mask, mask=exists)
    if SCORED:
        weight = _scores(weights, tensor, places, exists, EVEN)
        tl.store(score_grads + offset + places, grad * weight, mask=exists)


class Chunks:
    """How a list of tensors is cut into chunks, one program each, and where each would lie in one flat buffer."""

    def __init__(self, sizes: Sequence[int], device: torch.device, is_global: bool = False) -> None:
        tensors = [place for place, size in enumerate(sizes) for _ in range(0, size, CHUNK)]
        starts = [start for size in sizes for start in range(0, size, CHUNK)]
        firsts = [0] if is_global else [tensors.index(place) for place in range(len(sizes))]
        padded = [-(-size // 16) * 16 for size in sizes]
        self.places = [sum(padded[:place]) for place in range(len(sizes))]
        self.total, self.count = sum(padded), len(tensors)
        self.num_segments = len(firsts)
        self.is_even = all(size % 16 == 0 for size in sizes)

        def table(values: Sequence[int], dtype: torch.dtype = torch.int32) -> Tensor:
            return torch.tensor(values, dtype=dtype, device=device)

        self.layout = (table(tensors), table(starts), table(sizes))
        self.segments = table([0] * len(sizes) if is_global else range(len(sizes)))
        self.segment_of_chunk = table([0] * len(tensors) if is_global else tensors, torch.int64)
        self.first, self.offsets = table(firsts), table(self.places, torch.int64)

    def options(self) -> dict[str, Any]:
        return {"EVEN": self.is_even, "LENGTH": CHUNK, "num_warps": 8}


def addresses(tensors: Sequence[Tensor]) -> Tensor:
    """Where tensors lie in memory, as a table on their device; they must stay there."""
    assert all(tensor.is_contiguous() for tensor in tensors)
    places = [tensor.data_ptr() for tensor in tensors]
    return torch.tensor(places, dtype=torch.int64, device=tensors[0].device)


class Chooser:
    """Writes masks over exactly `kept` of the highest scores (or sizes) of each segment, in a few launches for all of them."""

    def __init__(
        self, scores: Sequence[Tensor], masks: Sequence[Tensor], is_sizes: bool, is_global: bool
    ) -> None:
        device = scores[0].device
        self.chunks = Chunks([score.numel() for score in scores], device, is_global)
        self.scores, self.masks, self.is_sizes = addresses(scores), addresses(masks), is_sizes
        num = self.chunks.num_segments
        self.prefixes = torch.zeros(num, dtype=torch.int64, device=device)
        self.missing = torch.zeros(num, dtype=torch.int32, device=device)
        self.counts = torch.zeros(num * 64, dtype=torch.int32, device=device)
        self.by_chunk = torch.zeros(self.chunks.count, 64, dtype=torch.int32, device=device)

    def choose_(self, kept: Tensor) -> None:
        """Set the masks; `kept` holds a number for each segment, on the device."""
        chunks, layout = self.chunks, self.chunks.layout
        self.prefixes.zero_()
        self.missing.copy_(kept)
        grid = (chunks.count,)
        for shift, width in DIGITS:
            _count_digits[grid](
                self.scores, *layout, chunks.segments, self.prefixes, self.counts, self.by_chunk,
                SHIFT=shift, WIDTH=width, SIZES=self.is_sizes, **chunks.options(),
            )  # fmt: skip
            _keep_digit[(chunks.num_segments,)](
                self.prefixes, self.missing, self.counts, WIDTH=width
            )
        digits = (self.prefixes & (2 ** DIGITS[-1][1] - 1))[chunks.segment_of_chunk]
        equals = self.by_chunk.gather(1, digits[:, None])[:, 0]
        before = equals.cumsum(0, dtype=torch.int32) - equals
        _write_masks[grid](
            self.scores, self.masks, *layout, chunks.segments, self.prefixes, self.missing,
            before, chunks.first, SIZES=self.is_sizes, **chunks.options(),
        )  # fmt: skip


def mask_copy_(chunks: Chunks, weights: Tensor, masks: Tensor, copies: Tensor, half: bool) -> None:
    """Write M ⊙ W of all tensors into their copies, in one launch; the three are tables of addresses."""
    _copy_masked[(chunks.count,)](
        weights, masks, copies, *chunks.layout, HALF=half, **chunks.options()
    )


def mask_grads(
    chunks: Chunks, weights: Tensor, masks: Tensor, grads: Sequence[Tensor], is_scored: bool
) -> tuple[list[Tensor], list[Tensor]]:
    """Return dW = M ⊙ G and, where there are scores, dS = G ⊙ W of all tensors, flat, from one pass."""
    device = grads[0].device
    flat = torch.empty(chunks.total, dtype=grads[0].dtype, device=device)
    # The gradients' addresses are new each time; a table of them could not be captured, but this copy can.
    torch._foreach_copy_(_views(flat, chunks, grads), [grad.flatten() for grad in grads])
    weight_grads = torch.empty(chunks.total, dtype=torch.float32, device=device)
    score_grads = torch.empty_like(weight_grads) if is_scored else weight_grads
    _write_grads[(chunks.count,)](
        weights, masks, flat, weight_grads, score_grads, chunks.offsets, *chunks.layout,
        SCORED=is_scored, **chunks.options(),
    )  # fmt: skip
    scores = _views(score_grads, chunks, grads) if is_scored else []
    return _views(weight_grads, chunks, grads), scores


def _views(flat: Tensor, chunks: Chunks, tensors: Sequence[Tensor]) -> list[Tensor]:
    return [
        flat[place : place + tensor.numel()]
        for place, tensor in zip(chunks.places, tensors, strict=True)
    ]
