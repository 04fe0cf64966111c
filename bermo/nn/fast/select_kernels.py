"""The kernels of `nn.fast.select` behind those of `nn.fast.collect_kernels`, in the order in which they run.

Names of tables: of a chunk `tensors, starts, equals, before`; of a group `numbers` (keys above · 2³² + keys
inside), `buffer, group_segments`; of a tensor `sizes, segments` and the addresses `scores, weights, masks,
originals, copies`; of a segment all others. `todo` lists the chunks whose keys are read again, as many as
`unsolved` says: first for digits, then for equals.
"""

import triton
import triton.language as tl

from bermo.nn.fast.collect_kernels import keys_of
from bermo.nn.fast.kernels import elements_of, pointer_at, values_at, write_copy


@triton.jit
def _list_chunks(segment, first_chunks, num_chunks, unsolved, todo, SPAN: tl.constexpr):
    """Add the chunks of a segment to `todo`, in any order of segments: what is counted is whole numbers."""
    first, number, done = tl.load(first_chunks + segment), tl.load(num_chunks + segment), 0
    base = tl.atomic_add(unsolved, number, sem="relaxed")
    while done < number:
        place = done + tl.arange(0, SPAN)
        tl.store(todo + base + place, first + place, mask=place < number)
        done += SPAN


@triton.jit
def route(
    kept,
    totals,
    first_groups,
    num_groups,
    numbers,
    inside,
    fullest,
    prefixes,
    missing,
    routes,
    unsolved,
    first_chunks,
    num_chunks,
    todo,
    SLOTS: tl.constexpr,
    SPAN: tl.constexpr,
):
    """Note where the k-th of a segment is searched: nowhere (0), in the slots (1), in all its keys (2)."""
    segment = tl.program_id(0)
    wanted, total = tl.load(kept + segment).to(tl.int32), tl.load(totals + segment)
    first, end, start = tl.load(first_groups + segment), tl.load(num_groups + segment), 0
    over, number, most = 0, 0, 0
    while start < end:
        group = start + tl.arange(0, SPAN)
        both = tl.load(numbers + first + group, mask=group < end, other=0)
        own = (both & 4294967295).to(tl.int32)
        over += tl.sum((both >> 32).to(tl.int32))
        number += tl.sum(own)
        most = tl.maximum(most, tl.max(own))
        start += SPAN
    tl.store(inside + segment, number)
    tl.store(fullest + segment, most)
    is_inside = (wanted > over) & (wanted <= over + number) & (most <= SLOTS)
    is_trivial = (wanted <= 0) | (wanted >= total)
    route = tl.where(is_trivial, 0, tl.where(is_inside, 1, 2))
    tl.store(routes + segment, route)
    tl.store(prefixes + segment, 0)
    tl.store(missing + segment, tl.where(route == 1, wanted - over, tl.maximum(wanted, 0)))
    if route == 2:
        _list_chunks(segment, first_chunks, num_chunks, unsolved, todo, SPAN)


@triton.jit
def _count(key, exists, segment, prefixes, counts, SHIFT: tl.constexpr, WIDTH: tl.constexpr):
    """Count the next digit of the keys that begin with the digits known so far."""
    digit = ((key >> SHIFT) & (2**WIDTH - 1)).to(tl.int32)
    if SHIFT + WIDTH < 32:
        exists &= (key >> (SHIFT + WIDTH)) == tl.load(prefixes + segment).to(tl.uint32)
    number = tl.histogram(digit, 64, mask=exists)
    bins = tl.arange(0, 64)
    tl.atomic_add(counts + segment * 64 + bins, number, mask=number > 0, sem="relaxed")


@triton.jit
def count_digits(
    scores,
    weights,
    tensors,
    starts,
    sizes,
    segments,
    todo,
    group_segments,
    num_groups,
    numbers,
    buffer,
    routes,
    unsolved,
    prefixes,
    counts,
    SHIFT: tl.constexpr,
    WIDTH: tl.constexpr,
    SCORED: tl.constexpr,
    WEIGHED: tl.constexpr,
    EVEN: tl.constexpr,
    LENGTH: tl.constexpr,
    SLOTS: tl.constexpr,
    SPAN: tl.constexpr,
):
    """Count a digit in all slots, and among all keys of the segments whose k-th is not in the slots."""
    group = tl.program_id(0)
    # Triton's interpreter knows no range over a number that was given at run time.
    while group < num_groups:
        segment = tl.load(group_segments + group)
        if tl.load(routes + segment) == 1:
            number, start = (tl.load(numbers + group) & 4294967295).to(tl.int32), 0
            while start < number:
                slots = start + tl.arange(0, SPAN)
                key = tl.load(buffer + group * SLOTS + slots, mask=slots < number, other=0)
                key = key.to(tl.uint32, bitcast=True)
                _count(key, slots < number, segment, prefixes, counts, SHIFT, WIDTH)
                start += SPAN
        group += tl.num_programs(0)
    place, number = tl.program_id(0), tl.load(unsolved)
    while place < number:
        tensor, index, exists = elements_of(tl.load(todo + place), tensors, starts, sizes, EVEN, LENGTH)
        key = keys_of(scores, weights, tensor, index, exists, SCORED, WEIGHED, EVEN)
        _count(key, exists, tl.load(segments + tensor), prefixes, counts, SHIFT, WIDTH)
        place += tl.num_programs(0)


@triton.jit
def keep_digit(
    prefixes,
    missing,
    counts,
    is_tied,
    unsolved,
    first_chunks,
    num_chunks,
    todo,
    SHIFT: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
):
    """Find the digit of the k-th highest, and how many are still missing below the digits above it."""
    segment = tl.program_id(0)
    bins = tl.arange(0, 64)
    number = tl.load(counts + segment * 64 + bins)
    wanted = tl.load(missing + segment)
    # Keys with this digit or a higher one.
    at_least = tl.sum(number) - tl.cumsum(number) + number
    digit = tl.max(tl.where((at_least >= wanted) & (bins < 2**WIDTH), bins, 0))
    wanted -= tl.sum(tl.where(bins > digit, number, 0))
    tl.store(missing + segment, wanted)
    prefix = tl.load(prefixes + segment)
    tl.store(prefixes + segment, prefix * 2**WIDTH + digit)
    tl.store(counts + segment * 64 + bins, tl.zeros_like(number))
    if SHIFT == 0:
        num_equals = tl.sum(tl.where(bins == digit, number, 0))
        tied = ((wanted > 0) & (wanted < num_equals)).to(tl.int32)
        tl.store(is_tied + segment, tied)
        if tied > 0:
            _list_chunks(segment, first_chunks, num_chunks, unsolved + 1, todo, SPAN)


@triton.jit
def count_equals(
    scores,
    weights,
    tensors,
    starts,
    sizes,
    segments,
    todo,
    prefixes,
    unsolved,
    equals,
    SCORED: tl.constexpr,
    WEIGHED: tl.constexpr,
    EVEN: tl.constexpr,
    LENGTH: tl.constexpr,
):
    """Count the k-th's equals chunk by chunk, in the segments that keep only some of them."""
    place, number = tl.program_id(0), tl.load(unsolved + 1)
    while place < number:
        chunk = tl.load(todo + place)
        tensor, index, exists = elements_of(chunk, tensors, starts, sizes, EVEN, LENGTH)
        threshold = tl.load(prefixes + tl.load(segments + tensor)).to(tl.uint32)
        key = keys_of(scores, weights, tensor, index, exists, SCORED, WEIGHED, EVEN)
        tl.store(equals + chunk, tl.sum(((key == threshold) & exists).to(tl.int32)))
        place += tl.num_programs(0)


@triton.jit
def sum_equals(equals, before, is_tied, first_chunks, num_chunks, SPAN: tl.constexpr):
    """Count the equals before each chunk of a segment that keeps only some of them."""
    segment = tl.program_id(0)
    if tl.load(is_tied + segment) > 0:
        first, number, start, total = tl.load(first_chunks + segment), tl.load(num_chunks + segment), 0, 0
        while start < number:
            chunk = start + tl.arange(0, SPAN)
            own = tl.load(equals + first + chunk, mask=chunk < number, other=0)
            tl.store(before + first + chunk, total + tl.cumsum(own) - own, mask=chunk < number)
            total += tl.sum(own)
            start += SPAN


@triton.jit
def write_masks(
    scores,
    weights,
    masks,
    originals,
    copies,
    tensors,
    starts,
    sizes,
    segments,
    prefixes,
    missing,
    is_tied,
    before,
    COPIED: tl.constexpr,
    HALF: tl.constexpr,
    SCORED: tl.constexpr,
    WEIGHED: tl.constexpr,
    EVEN: tl.constexpr,
    LENGTH: tl.constexpr,
):
    """Keep what is above the k-th, and as many of its equals as are missing, those of lowest index.

    With COPIED write M ⊙ W too, W being `originals`.
    """
    # From the last chunk on, which was collected last: a part of its keys is still in the GPU's cache.
    chunk = tl.num_programs(0) - 1 - tl.program_id(0)
    tensor, index, exists = elements_of(chunk, tensors, starts, sizes, EVEN, LENGTH)
    segment = tl.load(segments + tensor)
    threshold = tl.load(prefixes + segment).to(tl.uint32)
    wanted = tl.load(missing + segment)
    key = keys_of(scores, weights, tensor, index, exists, SCORED, WEIGHED, EVEN)
    if COPIED:
        # Read here, so that it arrives while the keys are compared.
        original = values_at(originals, tensor, index, exists, EVEN)
    is_equal = (key == threshold) & exists
    kept = (key > threshold) | (is_equal & (wanted > 0))
    if tl.load(is_tied + segment) > 0:
        rank = tl.load(before + chunk) + tl.cumsum(is_equal.to(tl.int32))
        kept = (key > threshold) | (is_equal & (rank <= wanted))
    target = pointer_at(masks, tensor, tl.int8, EVEN)
    tl.store(target + index, kept.to(tl.int8), mask=exists)
    if COPIED:
        # A product and not a choice: where the mask is 0 the sign of zero is the twin's.
        masked = original * kept.to(tl.float32)
        write_copy(copies, tensor, index, exists, masked, HALF, EVEN)
