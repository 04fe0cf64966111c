"""The first kernels of `nn.fast.select`: a bracket around each segment's k-th, and the keys inside it.

Names of tables are those of `nn.fast.select_kernels`, which holds the kernels that follow.
"""

import triton
import triton.language as tl

from bermo.nn.fast.kernels import sigmoid, values_at


@triton.jit
def _read(
    scores,
    weights,
    tensor,
    index,
    exists,
    SCORED: tl.constexpr,
    WEIGHED: tl.constexpr,
    EVEN: tl.constexpr,
):
    """The two numbers that a key is made from, one of them twice where there is only one."""
    if SCORED:
        score = values_at(scores, tensor, index, exists, EVEN)
        weight = values_at(weights, tensor, index, exists, EVEN) if WEIGHED else score
    else:
        weight = values_at(weights, tensor, index, exists, EVEN)
        score = weight
    return score, weight


@triton.jit
def _keys(score, weight, SCORED: tl.constexpr, WEIGHED: tl.constexpr):
    """Unsigned integers in the order of what is ranked, made from the bits of the floats."""
    value = score
    if WEIGHED:
        value = tl.abs(weight)
        if SCORED:
            value = value * sigmoid(score)
    # The sum makes −0 and 0 equals.
    bits = (value + 0.0).to(tl.int32, bitcast=True)
    return (bits ^ ((bits >> 31) | -2147483648)).to(tl.uint32, bitcast=True)


@triton.jit
def keys_of(
    scores,
    weights,
    tensor,
    index,
    exists,
    SCORED: tl.constexpr,
    WEIGHED: tl.constexpr,
    EVEN: tl.constexpr,
):
    """The keys of some elements of a tensor."""
    score, weight = _read(scores, weights, tensor, index, exists, SCORED, WEIGHED, EVEN)
    return _keys(score, weight, SCORED, WEIGHED)


@triton.jit
def bracket(
    scores,
    weights,
    tensors,
    starts,
    sizes,
    first,
    num_chunks,
    totals,
    kept,
    lows,
    highs,
    unsolved,
    SCORED: tl.constexpr,
    WEIGHED: tl.constexpr,
    LENGTH: tl.constexpr,
    SAMPLE: tl.constexpr,
):
    """Find two keys with the k-th between them almost surely, from runs of 8 keys over the whole segment."""
    segment = tl.program_id(0)
    spots = tl.arange(0, SAMPLE)
    runs = spots // 8
    chunk = tl.load(first + segment) + runs * tl.load(num_chunks + segment) // (SAMPLE // 8)
    tensor = tl.load(tensors + chunk)
    # Steps of the golden ratio through the chunk, so that rows and columns of any width are sampled alike.
    index = tl.load(starts + chunk) + (runs * 159 % (LENGTH // 8)) * 8 + spots % 8
    exists = index < tl.load(sizes + tensor)
    key = keys_of(scores, weights, tensor, index, exists, SCORED, WEIGHED, False)
    key = tl.where(exists, key, 0)
    wanted, total = tl.load(kept + segment), tl.load(totals + segment)
    number = tl.sum(exists.to(tl.int32)).to(tl.float32)
    share = tl.minimum(tl.maximum(wanted.to(tl.float32) / total.to(tl.float32), 0.0), 1.0)
    margin = 4.5 * tl.sqrt(number * share * (1 - share)) + 8
    low_rank, high_rank = number * share + margin, number * share - margin
    low, high = tl.full((), 0, tl.int64), tl.full((), 0, tl.int64)
    # The highest 18 bits are enough: sign, exponent and 9 of the fraction.
    for step in range(18):
        bit = tl.full((), 1, tl.int64) << (31 - step)
        is_over_low = (key >= (low | bit).to(tl.uint32)).to(tl.int32)
        is_over_high = (key >= (high | bit).to(tl.uint32)).to(tl.int32)
        both = tl.sum(is_over_low * 65536 + is_over_high)
        low = tl.where((both >> 16).to(tl.float32) >= low_rank, low | bit, low)
        high = tl.where((both & 65535).to(tl.float32) >= high_rank, high | bit, high)
    # Where none or all are kept, nothing is collected.
    is_trivial = (wanted <= 0) | (wanted >= total)
    tl.store(lows + segment, tl.where(is_trivial, 4294967295, low))
    tl.store(highs + segment, high | 16383)
    tl.store(unsolved + tl.arange(0, 2), tl.zeros((2,), tl.int32), mask=segment == 0)


@triton.jit
def _place(tensors, starts, chunk, end):
    """The tensor of a chunk, and a 16th of where it starts there; from chunk `end` on behind every tensor."""
    tensor = tl.load(tensors + chunk, mask=chunk < end, other=0)
    return tensor, tl.load(starts + chunk, mask=chunk < end, other=2147418112) // 16


@triton.jit
def _read_chunk(
    scores,
    weights,
    sizes,
    tensor,
    start,
    places,
    SCORED: tl.constexpr,
    WEIGHED: tl.constexpr,
    EVEN: tl.constexpr,
):
    """What the keys of a chunk are made from, and how many there are."""
    # By the product the compiler knows that it may load 16 bytes at a time.
    start = start * 16
    number = tl.load(sizes + tensor) - start
    if EVEN:
        number = tl.multiple_of(number, 16)
    exists = places < number
    score, weight = _read(scores, weights, tensor, start + places, exists, SCORED, WEIGHED, EVEN)
    return score, weight, number


@triton.jit
def collect(
    scores,
    weights,
    tensors,
    starts,
    sizes,
    lows,
    highs,
    group_segments,
    first_groups,
    num_groups,
    first_chunks,
    num_chunks,
    numbers,
    buffer,
    SCORED: tl.constexpr,
    WEIGHED: tl.constexpr,
    EVEN: tl.constexpr,
    LENGTH: tl.constexpr,
    GROUP: tl.constexpr,
    SLOTS: tl.constexpr,
):
    """Count the keys of a group above the bracket, and write those inside to its slots, in their order."""
    group = tl.program_id(0)
    segment = tl.load(group_segments + group)
    first, apart = tl.load(first_chunks + segment), tl.load(num_groups + segment)
    chunk, end = first + group - tl.load(first_groups + segment), first + tl.load(num_chunks + segment)
    low = tl.load(lows + segment).to(tl.uint32)
    high = tl.load(highs + segment).to(tl.uint32)
    # Rows of 4 keys, one for each thread, which adds them without the other threads.
    places = tl.arange(0, LENGTH // 4)[:, None] * 4 + tl.arange(0, 4)[None, :]
    above, used = tl.zeros((LENGTH // 4,), tl.int32), tl.full((), 0, tl.int32)
    # While a chunk is counted the next one is on its way, and where the one behind that lies.
    tensor, start = _place(tensors, starts, chunk, end)
    score, weight, number = _read_chunk(scores, weights, sizes, tensor, start, places, SCORED, WEIGHED, EVEN)
    tensor, start = _place(tensors, starts, chunk + apart, end)
    for i in range(GROUP):
        key, exists = _keys(score, weight, SCORED, WEIGHED), places < number
        score, weight, number = _read_chunk(
            scores, weights, sizes, tensor, start, places, SCORED, WEIGHED, EVEN
        )
        tensor, start = _place(tensors, starts, chunk + (i + 2) * apart, end)
        is_above = (key > high) & exists
        is_inside = (key >= low) & ~is_above & exists
        above += tl.sum(is_above.to(tl.int32), axis=1)
        inside = is_inside.to(tl.int32)
        own = tl.sum(inside, axis=1)
        slots = used + (tl.cumsum(own) - own)[:, None] + tl.cumsum(inside, axis=1) - inside
        target = buffer + group * SLOTS + slots
        tl.store(target, key.to(tl.int32, bitcast=True), mask=is_inside & (slots < SLOTS))
        used += tl.sum(own)
    tl.store(numbers + group, (tl.sum(above).to(tl.int64) << 32) + used)
