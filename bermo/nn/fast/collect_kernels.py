"""The first kernels of `nn.fast.select`: a bracket around each segment's k-th, and the keys inside it.

Names of tables are those of `nn.fast.select_kernels`, which holds the kernels that follow.
"""

import triton
import triton.language as tl

from bermo.nn.fast.kernels import sigmoid, values_at


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
    """Unsigned integers in the order of what is ranked, made from the bits of the floats."""
    if WEIGHED:
        value = tl.abs(values_at(weights, tensor, index, exists, EVEN))
        if SCORED:
            value = value * sigmoid(values_at(scores, tensor, index, exists, EVEN))
    else:
        value = values_at(scores, tensor, index, exists, EVEN)
    # The sum makes −0 and 0 equals.
    bits = (value + 0.0).to(tl.int32, bitcast=True)
    return (bits ^ ((bits >> 31) | -2147483648)).to(tl.uint32, bitcast=True)


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
def collect(
    scores,
    weights,
    tensors,
    starts,
    sizes,
    segments,
    lows,
    highs,
    groups,
    numbers,
    buffer,
    SCORED: tl.constexpr,
    WEIGHED: tl.constexpr,
    EVEN: tl.constexpr,
    LENGTH: tl.constexpr,
    SLOTS: tl.constexpr,
):
    """Count the keys above the bracket, and write those inside to the slots of the group, in any order."""
    chunk = tl.program_id(0)
    tensor = tl.load(tensors + chunk)
    start, size = tl.load(starts + chunk), tl.load(sizes + tensor)
    if EVEN:
        start, size = tl.multiple_of(start, 16), tl.multiple_of(size, 16)
    # Rows of 4 keys, one for each thread, which adds them without the other threads.
    index = start + tl.arange(0, LENGTH // 4)[:, None] * 4 + tl.arange(0, 4)[None, :]
    exists = index < size
    segment = tl.load(segments + tensor)
    low = tl.load(lows + segment).to(tl.uint32)
    high = tl.load(highs + segment).to(tl.uint32)
    key = keys_of(scores, weights, tensor, index, exists, SCORED, WEIGHED, EVEN)
    is_above = (key > high) & exists
    is_inside = (key >= low) & ~is_above & exists
    inside = is_inside.to(tl.int32)
    own = tl.sum(is_above.to(tl.int32) * 65536 + inside, axis=1)
    running = tl.cumsum(own)
    both = tl.sum(own).to(tl.int64)
    # One atomic operation for all keys of a program: one for each key would serialise 3 % of all keys.
    group = tl.load(groups + chunk)
    added = (both >> 16 << 32) + (both & 65535)
    base = tl.atomic_add(numbers + group, added, sem="relaxed")
    slots = (base & 4294967295).to(tl.int32) + (((running - own) & 65535)[:, None])
    slots += tl.cumsum(inside, axis=1) - inside
    target = buffer + group * SLOTS + slots
    tl.store(target, key.to(tl.int32, bitcast=True), mask=is_inside & (slots < SLOTS))
