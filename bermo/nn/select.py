"""Exactly k of the highest of each segment, without sorting, for graphics cards; its twin in plain torch: `nn.masks.top_masks`.

A segment is a matrix or all matrices of a model. It is ranked by S, by |W|, or by |W| · σ(S), computed where it is read. A float's bits
are made to rise with its value (a key). Five parts, of a fixed number of launches and without a word from the host:

    bracket    a sample of 8,192 keys a segment gives a low and a high one, with the k-th between them almost surely:
               the sample's ranks k·m/n ± 4.5 · sqrt(m · k/n · (1 − k/n))
    collect    all keys are read once: those above the bracket are counted, those inside go to their chunk's slots
    find       the k-th, digit by digit (radix select), among the few in the slots
    ties       where only some of the k-th's equals are kept, they are counted chunk by chunk: the first by place stay
    write      all keys are read once more and become masks

If the k-th is not inside, or too many are (equals), the digits of that segment are counted among all its keys. So the masks depend on the
scores and on k alone, never on the sample, and a run taken up again chooses as the first did.

Bytes for 84.9 M scores: 2 × 340 MB read and 85 MB written, 0.19 ms at 4 TB/s; |W| · σ(S) reads twice as much.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

from bermo.nn.kernels import Chunks, addresses, places_of, pointer_at, values_at

LENGTH = 2048  # keys a program; 8 a thread, so that a card holds many programs and waits for few
NUM_WARPS = 8
PROGRAMS = 2048  # of a pass that may have nothing to do
SAMPLE = 8192
SLOTS = 256  # an 8th of a chunk; the bracket holds a 20th of a segment at most, at half density
ROWS = 32  # chunks whose slots are read together
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
    bits = (value + 0.0).to(tl.int32, bitcast=True)  # the sum makes −0 and 0 equals
    return (bits ^ ((bits >> 31) | -2147483648)).to(tl.uint32, bitcast=True)


@triton.jit
def _bracket(
    scores, weights, tensors, starts, sizes, first, num_chunks, totals, kept,
    lows, highs, above, inside, fullest, unsolved,
    SCORED: tl.constexpr, WEIGHED: tl.constexpr, LENGTH: tl.constexpr, SAMPLE: tl.constexpr,
):  # fmt: skip
    """Find two keys with the k-th between them almost surely, from runs of 8 keys spread evenly over the segment."""
    segment = tl.program_id(0)
    spots = tl.arange(0, SAMPLE)
    runs = spots // 8
    chunk = tl.load(first + segment) + runs * tl.load(num_chunks + segment) // (SAMPLE // 8)
    tensor = tl.load(tensors + chunk)
    # A golden step through the chunk, so that rows and columns of any width are met alike.
    places = tl.load(starts + chunk) + (runs * 159 % (LENGTH // 8)) * 8 + spots % 8
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
    tl.store(fullest + segment, 0)
    tl.store(unsolved + tl.arange(0, 2), tl.zeros((2,), tl.int32), mask=segment == 0)


@triton.jit
def _collect(
    scores, weights, tensors, starts, sizes, segments, lows, highs, above, inside, fullest,
    numbers, buffer,
    SCORED: tl.constexpr, WEIGHED: tl.constexpr, EVEN: tl.constexpr, LENGTH: tl.constexpr,
    SLOTS: tl.constexpr,
):  # fmt: skip
    """Count the keys above the bracket, and put those inside into the chunk's slots, in any order."""
    chunk = tl.program_id(0)
    tensor, places, exists = places_of(chunk, tensors, starts, sizes, EVEN, LENGTH)
    segment = tl.load(segments + tensor)
    low = tl.load(lows + segment).to(tl.uint32)
    high = tl.load(highs + segment).to(tl.uint32)
    key = _keys(scores, weights, tensor, places, exists, SCORED, WEIGHED, EVEN)
    is_above = (key > high) & exists
    is_inside = (key >= low) & ~is_above & exists
    # Few are inside: a number drawn for each costs less than a running sum over all.
    slots = tl.atomic_add(numbers + chunk + tl.zeros_like(places), 1, is_inside, sem="relaxed")
    target = buffer + chunk * SLOTS + slots
    tl.store(target, key.to(tl.int32, bitcast=True), mask=is_inside & (slots < SLOTS))
    both = tl.sum(is_above.to(tl.int32) * 65536 + is_inside.to(tl.int32))
    tl.atomic_add(above + segment, both >> 16, sem="relaxed")
    tl.atomic_add(inside + segment, both & 65535, sem="relaxed")
    tl.atomic_max(fullest + segment, both & 65535, sem="relaxed")


@triton.jit
def _route(
    kept, totals, above, inside, fullest, prefixes, missing, routes, unsolved, SLOTS: tl.constexpr
):
    """Say where the k-th of a segment is to be found: nowhere (0), in the slots (1), or among all its keys (2)."""
    segment = tl.program_id(0)
    wanted, total = tl.load(kept + segment).to(tl.int32), tl.load(totals + segment)
    over, number = tl.load(above + segment), tl.load(inside + segment)
    is_inside = (wanted > over) & (wanted <= over + number)
    is_inside &= tl.load(fullest + segment) <= SLOTS
    is_trivial = (wanted <= 0) | (wanted >= total)
    route = tl.where(is_trivial, 0, tl.where(is_inside, 1, 2))
    tl.store(routes + segment, route)
    tl.store(prefixes + segment, 0)
    tl.store(missing + segment, tl.where(route == 1, wanted - over, tl.maximum(wanted, 0)))
    tl.atomic_add(unsolved, (route == 2).to(tl.int32), sem="relaxed")


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
    part_segments, part_starts, part_sizes, first, num_parts,
    numbers, buffer, routes, unsolved, prefixes, counts,
    SHIFT: tl.constexpr, WIDTH: tl.constexpr,
    SCORED: tl.constexpr, WEIGHED: tl.constexpr, EVEN: tl.constexpr, LENGTH: tl.constexpr,
    SLOTS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Count a digit in all slots, and among all keys of the segments whose slots do not serve."""
    COLUMNS: tl.constexpr = LENGTH // ROWS
    part = tl.program_id(0)
    while part < num_parts:  # Triton's interpreter cannot count a range of such numbers
        segment = tl.load(part_segments + part)
        if tl.load(routes + segment) == 1:
            row = tl.load(part_starts + part) + tl.arange(0, LENGTH) // COLUMNS
            chunk = tl.load(first + segment) + row
            is_row = row < tl.load(part_sizes + segment)
            number = tl.load(numbers + chunk, mask=is_row, other=0)
            slot = tl.arange(0, LENGTH) % COLUMNS
            most, done = tl.max(number), 0
            while done < most:
                key = tl.load(buffer + chunk * SLOTS + slot, mask=slot < number, other=0)
                key = key.to(tl.uint32, bitcast=True)
                _count(key, slot < number, segment, prefixes, counts, SHIFT, WIDTH)
                slot += COLUMNS
                done += COLUMNS
        part += tl.num_programs(0)
    if tl.load(unsolved) > 0:
        chunk = tl.program_id(0)
        while chunk < num_chunks:
            tensor, places, exists = places_of(chunk, tensors, starts, sizes, EVEN, LENGTH)
            segment = tl.load(segments + tensor)
            if tl.load(routes + segment) == 2:
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
        chunks, num = self.chunks, self.chunks.num_segments
        self.parts = Chunks(chunks.num_chunks.tolist(), device, length=ROWS)
        self.totals = torch.tensor(chunks.segment_sizes, dtype=torch.int32, device=device)

        def zeros(length: int, dtype: torch.dtype = torch.int32) -> Tensor:
            return torch.zeros(length, dtype=dtype, device=device)

        self.numbers, self.equals = zeros(chunks.count), zeros(chunks.count)
        self.buffer = zeros(chunks.count * SLOTS)
        self.lows, self.highs = zeros(num, torch.int64), zeros(num, torch.int64)
        self.above, self.inside, self.fullest = zeros(num), zeros(num), zeros(num)
        self.prefixes, self.missing = zeros(num, torch.int64), zeros(num)
        self.counts, self.unsolved = zeros(num * 64), zeros(2)
        self.routes, self.is_tied = zeros(num), zeros(num)

    def choose_(self, kept: Tensor) -> None:
        """Set the masks; `kept` holds a number for each segment, on the device."""
        chunks = self.chunks
        tensors = (*self.sources, *chunks.layout)
        options = {**self.kinds, **chunks.options(num_warps=NUM_WARPS)}
        self._collect(kept)
        self._find()
        _count_equals[(min(PROGRAMS, chunks.count),)](
            *tensors, chunks.segments, chunks.count, self.prefixes, self.is_tied, self.unsolved,
            self.equals, **options,
        )  # fmt: skip
        before = self.equals.cumsum(0, dtype=torch.int32) - self.equals
        _write_masks[(chunks.count,)](
            *self.sources, self.masks, *chunks.layout, chunks.segments, self.prefixes,
            self.missing, self.is_tied, before, chunks.first, **options,
        )  # fmt: skip

    def _collect(self, kept: Tensor) -> None:
        """Fill the slots, and say of each segment whether its k-th is there."""
        chunks, each = self.chunks, (self.chunks.num_segments,)
        tensors = (*self.sources, *chunks.layout)
        found = (self.above, self.inside, self.fullest)
        self.numbers.zero_()
        _bracket[each](
            *tensors, chunks.first, chunks.num_chunks, self.totals, kept, self.lows, self.highs,
            *found, self.unsolved, LENGTH=LENGTH, SAMPLE=SAMPLE, num_warps=16, **self.kinds,
        )  # fmt: skip
        _collect[(chunks.count,)](
            *tensors, chunks.segments, self.lows, self.highs, *found, self.numbers, self.buffer,
            SLOTS=SLOTS, **self.kinds, **chunks.options(num_warps=NUM_WARPS),
        )  # fmt: skip
        _route[each](
            kept, self.totals, *found, self.prefixes, self.missing, self.routes, self.unsolved,
            SLOTS=SLOTS,
        )  # fmt: skip

    def _find(self) -> None:
        """Find the k-th of each segment, digit by digit."""
        chunks, parts = self.chunks, self.parts
        for shift, width in DIGITS:
            _count_digits[(min(PROGRAMS, chunks.count),)](
                *self.sources, *chunks.layout, chunks.segments, chunks.count,
                *parts.layout, chunks.first, parts.count, self.numbers, self.buffer,
                self.routes, self.unsolved, self.prefixes, self.counts,
                SHIFT=shift, WIDTH=width, SLOTS=SLOTS, ROWS=ROWS, **self.kinds,
                **chunks.options(num_warps=NUM_WARPS),
            )  # fmt: skip
            _keep_digit[(chunks.num_segments,)](
                self.prefixes, self.missing, self.counts, self.is_tied, self.unsolved,
                SHIFT=shift, WIDTH=width,
            )  # fmt: skip
