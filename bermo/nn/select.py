"""Exactly k of the highest of each segment, without sorting, for graphics cards; its twin in plain torch: `nn.masks.top_masks`.

A segment is a matrix or all matrices of a model. It is ranked by S, by |W|, or by |W| · σ(S), computed where it is read. A float's bits
are made to rise with its value (a key). Five parts, of a fixed number of launches and without a word from the host:

    bracket    a sample of 16,384 keys a segment gives a low and a high one, with the k-th between them almost surely:
               the sample's ranks k·m/n ± 4.5 · sqrt(m · k/n · (1 − k/n))
    collect    all keys are read once: those above the bracket are counted, those inside go to a buffer
    find       the k-th, digit by digit (radix select), among the few in the buffer
    ties       where only some of the k-th's equals are kept, they are counted chunk by chunk: the first by place stay
    write      all keys are read once more and become masks

If the k-th is not inside, or too many are (equals), the digits of that segment are counted among all its keys. So the masks depend on the
scores and on k alone, never on the sample, and a run taken up again chooses as the first did.

Bytes for 84.9 M scores: 2 × 340 MB read and 85 MB written, 0.19 ms at 4 TB/s; |W| · σ(S) reads twice as much.
"""

from collections.abc import Sequence
from itertools import accumulate

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

from bermo.nn.kernels import Chunks, addresses, places_of, pointer_at, values_at

LENGTH = 4096  # keys a program; with 4 warps a running sum over them costs half of what 8 take
PROGRAMS = 2048  # of a pass that may have nothing to do: as many as a large card holds at once
SAMPLE = 16384
ROOM = 16  # a segment's buffer holds a 16th of it; the bracket holds a 27th at most, at half density
LEAST_ROOM = 1024
DIGITS = ((26, 6), (20, 6), (15, 5), (10, 5), (5, 5), (0, 5))  # shift and width in bits

IS_INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


@triton.jit
def _sigmoid(value):
    """1 / (1 + exp(−x)), rounded as torch rounds it on a card: tl.exp is less exact there than libdevice's."""
    if IS_INTERPRETED:
        raised = tl.exp(-value)
    else:
        raised = libdevice.exp(-value)
    return tl.math.div_rn(1.0, 1.0 + raised)


@triton.jit
def _keys(
    scores, weights, tensor, places, exists,
    SCORED: tl.constexpr, WEIGHED: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Bits that rise with what is ranked, as an unsigned number."""
    if WEIGHED:
        value = tl.abs(values_at(weights, tensor, places, exists, EVEN))
        if SCORED:
            value = value * _sigmoid(values_at(scores, tensor, places, exists, EVEN))
    else:
        value = values_at(scores, tensor, places, exists, EVEN)
    value = tl.where(value == 0, 0.0, value)  # −0 and 0 are equals
    bits = value.to(tl.int32, bitcast=True)
    flipped = tl.where(bits < 0, ~bits, bits | -2147483648)
    return flipped.to(tl.uint32, bitcast=True)


@triton.jit
def _bracket(
    scores, weights, tensors, starts, sizes, first, num_chunks, totals, kept,
    lows, highs, above, inside, unsolved,
    SCORED: tl.constexpr, WEIGHED: tl.constexpr, LENGTH: tl.constexpr, SAMPLE: tl.constexpr,
):  # fmt: skip
    """Find two keys with the k-th between them almost surely, from runs of 8 keys spread evenly over the segment."""
    segment = tl.program_id(0)
    spots = tl.arange(0, SAMPLE)
    runs = spots // 8
    chunk = tl.load(first + segment) + runs * tl.load(num_chunks + segment) // (SAMPLE // 8)
    tensor = tl.load(tensors + chunk)
    # A golden step through the chunk, so that rows and columns of any width are met alike.
    places = tl.load(starts + chunk) + (runs * 317 % (LENGTH // 8)) * 8 + spots % 8
    exists = places < tl.load(sizes + tensor)
    key = _keys(scores, weights, tensor, places, exists, SCORED, WEIGHED, False)
    key = tl.where(exists, key, 0)
    wanted, total = tl.load(kept + segment), tl.load(totals + segment)
    number = tl.sum(exists.to(tl.int32)).to(tl.float32)
    share = tl.minimum(tl.maximum(wanted.to(tl.float32) / total.to(tl.float32), 0.0), 1.0)
    margin = 4.5 * tl.sqrt(number * share * (1 - share)) + 8
    low_rank, high_rank = number * share + margin, number * share - margin
    low, high = tl.full((), 0, tl.int64), tl.full((), 0, tl.int64)
    for step in range(18):  # the highest 18 bits will do: sign, exponent and 9 of the fraction
        bit = tl.full((), 1, tl.int64) << (31 - step)
        is_over_low = (key >= (low | bit).to(tl.uint32)).to(tl.int32)
        is_over_high = (key >= (high | bit).to(tl.uint32)).to(tl.int32)
        both = tl.sum(is_over_low * 65536 + is_over_high)
        low = tl.where((both >> 16).to(tl.float32) >= low_rank, low | bit, low)
        high = tl.where((both & 65535).to(tl.float32) >= high_rank, high | bit, high)
    is_trivial = (wanted <= 0) | (wanted >= total)  # then nothing need be collected
    tl.store(lows + segment, tl.where(is_trivial, 4294967295, low))
    tl.store(highs + segment, high | 16383)
    tl.store(above + segment, 0)
    tl.store(inside + segment, 0)
    tl.store(unsolved + tl.arange(0, 2), tl.zeros((2,), tl.int32), mask=segment == 0)


@triton.jit
def _collect(
    scores, weights, tensors, starts, sizes, segments, lows, highs, above, inside,
    buffer, offsets, rooms,
    SCORED: tl.constexpr, WEIGHED: tl.constexpr, EVEN: tl.constexpr, LENGTH: tl.constexpr,
):  # fmt: skip
    """Count the keys above the bracket, and put those inside into the segment's buffer, in any order."""
    tensor, places, exists = places_of(
        tl.program_id(0), tensors, starts, sizes, EVEN, LENGTH
    )
    segment = tl.load(segments + tensor)
    low = tl.load(lows + segment).to(tl.uint32)
    high = tl.load(highs + segment).to(tl.uint32)
    key = _keys(scores, weights, tensor, places, exists, SCORED, WEIGHED, EVEN)
    is_above = (key > high) & exists
    is_inside = (key >= low) & (key <= high) & exists
    both = tl.sum(is_above.to(tl.int32) * 65536 + is_inside.to(tl.int32))
    tl.atomic_add(above + segment, both >> 16, sem="relaxed")
    number = both & 65535
    if number > 0:
        start = tl.atomic_add(inside + segment, number, sem="relaxed")
        spots = start + tl.cumsum(is_inside.to(tl.int32)) - 1
        target = buffer + tl.load(offsets + segment) + spots
        has_room = spots < tl.load(rooms + segment)
        tl.store(target, key.to(tl.int32, bitcast=True), mask=is_inside & has_room)


@triton.jit
def _route(
    kept, totals, rooms, above, inside,
    prefixes, missing, numbers, is_everywhere, unsolved,
):  # fmt: skip
    """Say where the k-th of a segment is to be found: in its buffer, or among all its keys."""
    segment = tl.program_id(0)
    wanted, total = tl.load(kept + segment).to(tl.int32), tl.load(totals + segment)
    number, over = tl.load(inside + segment), tl.load(above + segment)
    is_trivial = (wanted <= 0) | (wanted >= total)
    is_inside = (wanted > over) & (wanted <= over + number) & (number <= tl.load(rooms + segment))
    is_inside &= ~is_trivial
    is_open = (~(is_inside | is_trivial)).to(tl.int32)
    tl.store(prefixes + segment, 0)
    tl.store(missing + segment, tl.where(is_inside, wanted - over, tl.maximum(wanted, 0)))
    tl.store(numbers + segment, tl.where(is_inside, number, 0))
    tl.store(is_everywhere + segment, is_open)
    tl.atomic_add(unsolved, is_open, sem="relaxed")


@triton.jit
def _count(key, exists, segment, prefixes, counts, SHIFT: tl.constexpr, WIDTH: tl.constexpr):
    """Count the next digit of the keys that share the digits found so far."""
    digit = ((key >> SHIFT) & (2**WIDTH - 1)).to(tl.int32)
    if SHIFT + WIDTH < 32:
        exists &= (key >> (SHIFT + WIDTH)) == tl.load(prefixes + segment).to(tl.uint32)
    found = tl.histogram(digit, 64, mask=exists)
    bins = tl.arange(0, 64)
    tl.atomic_add(counts + segment * 64 + bins, found, mask=found > 0, sem="relaxed")


@triton.jit
def _count_digits(
    scores, weights, tensors, starts, sizes, segments, num_chunks,
    buffer, buffer_segments, buffer_starts, offsets, numbers, num_buffer_chunks,
    is_everywhere, unsolved, prefixes, counts,
    SHIFT: tl.constexpr, WIDTH: tl.constexpr,
    SCORED: tl.constexpr, WEIGHED: tl.constexpr, EVEN: tl.constexpr, LENGTH: tl.constexpr,
):  # fmt: skip
    """Count a digit in all buffers, and among all keys of the segments whose buffer does not serve."""
    part = tl.program_id(0)
    while part < num_buffer_chunks:  # Triton's interpreter cannot count a range of such numbers
        segment = tl.load(buffer_segments + part)
        number, start = tl.load(numbers + segment), tl.load(buffer_starts + part)
        if start < number:
            spots = start + tl.arange(0, LENGTH)
            source = buffer + tl.load(offsets + segment) + spots
            key = tl.load(source, mask=spots < number, other=0).to(tl.uint32, bitcast=True)
            _count(key, spots < number, segment, prefixes, counts, SHIFT, WIDTH)
        part += tl.num_programs(0)
    if tl.load(unsolved) > 0:
        chunk = tl.program_id(0)
        while chunk < num_chunks:
            tensor, places, exists = places_of(chunk, tensors, starts, sizes, EVEN, LENGTH)
            segment = tl.load(segments + tensor)
            if tl.load(is_everywhere + segment) > 0:
                key = _keys(scores, weights, tensor, places, exists, SCORED, WEIGHED, EVEN)
                _count(key, exists, segment, prefixes, counts, SHIFT, WIDTH)
            chunk += tl.num_programs(0)


@triton.jit
def _keep_digit(
    prefixes, missing, counts, is_tied, unsolved, SHIFT: tl.constexpr, WIDTH: tl.constexpr
):
    """Find the digit of the k-th highest, and how many are still missing below the digits above it."""
    segment = tl.program_id(0)
    bins = tl.arange(0, 64)
    found = tl.load(counts + segment * 64 + bins)
    wanted = tl.load(missing + segment)
    at_least = tl.sum(found) - tl.cumsum(found) + found  # keys with this digit or a higher one
    digit = tl.max(tl.where((at_least >= wanted) & (bins < 2**WIDTH), bins, 0))
    wanted -= tl.sum(tl.where(bins > digit, found, 0))
    tl.store(missing + segment, wanted)
    prefix = tl.load(prefixes + segment)
    tl.store(prefixes + segment, prefix * 2**WIDTH + digit)
    tl.store(counts + segment * 64 + bins, tl.zeros_like(found))
    if SHIFT == 0:
        equals = tl.sum(tl.where(bins == digit, found, 0))
        tied = ((wanted > 0) & (wanted < equals)).to(tl.int32)
        tl.store(is_tied + segment, tied)
        tl.atomic_add(unsolved + 1, tied, sem="relaxed")


@triton.jit
def _count_equals(
    scores, weights, tensors, starts, sizes, segments, num_chunks,
    prefixes, is_tied, unsolved, by_chunk,
    SCORED: tl.constexpr, WEIGHED: tl.constexpr, EVEN: tl.constexpr, LENGTH: tl.constexpr,
):  # fmt: skip
    """Count the k-th's equals chunk by chunk, in the segments that keep only some of them."""
    if tl.load(unsolved + 1) > 0:
        chunk = tl.program_id(0)
        while chunk < num_chunks:
            tensor, places, exists = places_of(chunk, tensors, starts, sizes, EVEN, LENGTH)
            segment = tl.load(segments + tensor)
            if tl.load(is_tied + segment) > 0:
                key = _keys(scores, weights, tensor, places, exists, SCORED, WEIGHED, EVEN)
                is_equal = (key == tl.load(prefixes + segment).to(tl.uint32)) & exists
                tl.store(by_chunk + chunk, tl.sum(is_equal.to(tl.int32)))
            chunk += tl.num_programs(0)


@triton.jit
def _write_masks(
    scores, weights, masks, tensors, starts, sizes, segments,
    prefixes, missing, is_tied, before, first,
    SCORED: tl.constexpr, WEIGHED: tl.constexpr, EVEN: tl.constexpr, LENGTH: tl.constexpr,
):  # fmt: skip
    chunk = tl.program_id(0)
    tensor, places, exists = places_of(chunk, tensors, starts, sizes, EVEN, LENGTH)
    segment = tl.load(segments + tensor)
    threshold = tl.load(prefixes + segment).to(tl.uint32)
    wanted = tl.load(missing + segment)
    key = _keys(scores, weights, tensor, places, exists, SCORED, WEIGHED, EVEN)
    is_equal = (key == threshold) & exists
    kept = (key > threshold) | (is_equal & (wanted > 0))
    if tl.load(is_tied + segment) > 0:
        # `before` counts the equals of all chunks; those of earlier segments do not matter.
        offset = tl.load(before + chunk) - tl.load(before + tl.load(first + segment))
        rank = offset + tl.cumsum(is_equal.to(tl.int32))
        kept = (key > threshold) | (is_equal & (rank <= wanted))
    target = pointer_at(masks, tensor, tl.int8, EVEN)
    tl.store(target + places, kept.to(tl.int8), mask=exists)


class Chooser:
    """Writes masks over exactly `kept` of the highest S, |W| or |W| · σ(S) of each segment, all in a few launches.

    What is given is what is ranked by: scores, weights, or both. Tensors of one segment are neighbours; without `segments` each is
    one of its own. All must stay where they are.
    """

    def __init__(
        self,
        masks: Sequence[Tensor],
        *,
        scores: Sequence[Tensor] | None = None,
        weights: Sequence[Tensor] | None = None,
        segments: Sequence[int] | None = None,
    ) -> None:
        device = masks[0].device
        self.chunks = Chunks([mask.numel() for mask in masks], device, segments, LENGTH)
        given = [list(item) for item in (scores, weights) if item is not None]
        assert given, "a chooser ranks by scores, by weights, or by both"
        ranked = [item for tensors in given for item in tensors]
        assert all(item.dtype == torch.float32 for item in ranked)
        if any(item.data_ptr() % 16 for item in (*ranked, *masks)):
            self.chunks.is_even = False
        self.kinds = {"SCORED": scores is not None, "WEIGHED": weights is not None}
        tables = [addresses(tensors) for tensors in given]
        self.sources, self.masks = (tables[0], tables[-1]), addresses(masks)
        self._make_buffers(device)

    def _make_buffers(self, device: torch.device) -> None:
        totals, num = self.chunks.segment_sizes, self.chunks.num_segments
        rooms = [max(-(-total // ROOM), LEAST_ROOM) for total in totals]
        self.parts = Chunks(rooms, device, length=LENGTH)
        self.totals = torch.tensor(totals, dtype=torch.int32, device=device)

        def zeros(length: int, dtype: torch.dtype = torch.int32) -> Tensor:
            return torch.zeros(length, dtype=dtype, device=device)

        self.buffer, self.by_chunk = zeros(self.parts.total), zeros(self.chunks.count)
        self.lows, self.highs = zeros(num, torch.int64), zeros(num, torch.int64)
        self.above, self.inside, self.numbers = zeros(num), zeros(num), zeros(num)
        self.prefixes, self.missing = zeros(num, torch.int64), zeros(num)
        self.counts, self.unsolved = zeros(num * 64), zeros(2)
        self.is_everywhere, self.is_tied = zeros(num), zeros(num)

    def choose_(self, kept: Tensor) -> None:
        """Set the masks; `kept` holds a number for each segment, on the device."""
        chunks, each = self.chunks, (self.chunks.num_segments,)
        tensors = (*self.sources, *chunks.layout)
        options = {**self.kinds, **chunks.options(num_warps=4)}
        self._collect(kept)
        few = (min(PROGRAMS, max(chunks.count, self.parts.count)),)
        for shift, width in DIGITS:
            _count_digits[few](
                *tensors, chunks.segments, chunks.count, self.buffer, *self.parts.layout[:2],
                self.parts.offsets, self.numbers, self.parts.count, self.is_everywhere,
                self.unsolved, self.prefixes, self.counts, SHIFT=shift, WIDTH=width, **options,
            )  # fmt: skip
            _keep_digit[each](
                self.prefixes, self.missing, self.counts, self.is_tied, self.unsolved,
                SHIFT=shift, WIDTH=width,
            )  # fmt: skip
        _count_equals[few](
            *tensors, chunks.segments, chunks.count, self.prefixes, self.is_tied, self.unsolved,
            self.by_chunk, **options,
        )  # fmt: skip
        before = self.by_chunk.cumsum(0, dtype=torch.int32) - self.by_chunk
        _write_masks[(chunks.count,)](
            *self.sources, self.masks, *chunks.layout, chunks.segments, self.prefixes,
            self.missing, self.is_tied, before, chunks.first, **options,
        )  # fmt: skip

    def _collect(self, kept: Tensor) -> None:
        """Fill the buffers, and say of each segment whether its k-th is there."""
        chunks, each = self.chunks, (self.chunks.num_segments,)
        tensors = (*self.sources, *chunks.layout)
        _bracket[each](
            *tensors, chunks.first, chunks.num_chunks, self.totals, kept, self.lows, self.highs,
            self.above, self.inside, self.unsolved,
            LENGTH=LENGTH, SAMPLE=SAMPLE, num_warps=16, **self.kinds,
        )  # fmt: skip
        rooms = self.parts.layout[2]
        _collect[(chunks.count,)](
            *tensors, chunks.segments, self.lows, self.highs, self.above, self.inside,
            self.buffer, self.parts.offsets, rooms, **self.kinds, **chunks.options(num_warps=4),
        )  # fmt: skip
        _route[each](
            kept, self.totals, rooms, self.above, self.inside, self.prefixes, self.missing,
            self.numbers, self.is_everywhere, self.unsolved,
        )  # fmt: skip
