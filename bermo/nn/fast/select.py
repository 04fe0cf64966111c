"""Masks over exactly the k highest of each segment, without sorting, for GPUs.

The twin in plain torch is `nn.masks.top_masks`. A segment is a matrix, or all matrices of a model. It is
ranked by S, by |W|, or by |W| · σ(S), computed when it is read. The bits of a float are turned into an
integer that grows with its value (a key). Five parts, with a fixed number of launches and without waiting
for the CPU:

    bracket    a sample of 8,192 keys of a segment gives two, with the k-th between them almost surely: the
               sample's ranks k·m/n ± 4.5 · sqrt(m · k/n · (1 − k/n))
    collect    all keys are read once: those above the bracket are counted, those inside are written to slots;
               a program reads a group of chunks, one while it counts another, and fills slots of its own
    find       the k-th, digit by digit (radix select), among the few in the slots
    ties       where only some of the keys that equal the k-th are kept, they are counted chunk by chunk:
               those of lowest index stay
    write      all keys are read once more and become masks; the same pass writes copies M ⊙ W, if they are
               wanted

If the k-th is not inside, or too many keys are (equals), the digits of that segment are counted among all its
keys. Its chunks are listed, and these passes visit no others. So the masks depend on the scores and on k
alone, never on the sample, and a resumed run selects as an uninterrupted one does.

Bytes for 84.9 M scores: 2 × 340 MB read and 85 MB written, 0.19 ms at 4 TB/s; |W| · σ(S) reads twice as much.
Copies in bfloat16 add 340 MB read and 170 MB written; a pass of their own would read the masks, too.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from bermo.nn.fast.collect_kernels import bracket, collect
from bermo.nn.fast.kernels import Chunks, addresses
from bermo.nn.fast.select_kernels import (
    count_digits,
    count_equals,
    keep_digit,
    route,
    sum_equals,
    write_masks,
)

# Keys of one program: 8 for each thread, so that a GPU holds many programs at once; 16 in `collect`.
LENGTH = 2048
NUM_WARPS, COLLECT_WARPS = 8, 4
# Programs of a pass that may have nothing to do, and of one over all groups.
PROGRAMS, MOST_PROGRAMS = 2048, 8192
SAMPLE = 8192
# Chunks of a program that share slots; they are far apart, because neighbouring rows are often alike.
GROUP = 8
# Slots of a group, for an 8th of its keys; the bracket holds a 20th of a segment at most, at half density.
SLOTS = 2048
# Slots read at once, by so many warps.
SPAN = 512
SPAN_WARPS = 4
# Shift and width of each digit, in bits.
DIGITS = ((26, 6), (20, 6), (15, 5), (10, 5), (5, 5), (0, 5))


class TopSelector:
    """Writes masks over exactly `kept` of the highest S, |W| or |W| · σ(S) of each segment.

    Give scores, weights or both: what is given is what is ranked by. Tensors of one segment are neighbours;
    without `segments` each is one of its own. `copied` are the weights under the masks, each with the copy
    M ⊙ W that is written with its mask. No tensor may be moved afterwards.
    """

    def __init__(
        self,
        masks: Sequence[Tensor],
        *,
        scores: Sequence[Tensor] | None = None,
        weights: Sequence[Tensor] | None = None,
        segments: Sequence[int] | None = None,
        copied: Sequence[tuple[Tensor, Tensor]] = (),
    ) -> None:
        device = masks[0].device
        self.chunks = Chunks([mask.numel() for mask in masks], device, segments, LENGTH)
        given = [list(item) for item in (scores, weights) if item is not None]
        assert given, "a selector ranks by scores, by weights, or by both"
        ranked = [item for tensors in given for item in tensors]
        assert all(item.dtype == torch.float32 for item in ranked)
        originals, copies = [weight for weight, _ in copied], [copy for _, copy in copied]
        if any(item.data_ptr() % 16 for item in (*ranked, *masks, *originals, *copies)):
            self.chunks.is_even = False
        self.kinds = {"SCORED": scores is not None, "WEIGHED": weights is not None}
        tables = [addresses(tensors) for tensors in given]
        self.sources, self.masks = (tables[0], tables[-1]), addresses(masks)
        # What is not given is not read; any table will do as an argument.
        self.copied = (addresses(originals), addresses(copies)) if copied else (self.masks, self.masks)
        self.copying = {"COPIED": bool(copied), "HALF": bool(copied) and copies[0].dtype == torch.bfloat16}
        self._make_buffers(device)

    def _make_buffers(self, device: torch.device) -> None:
        chunks, num = self.chunks, self.chunks.num_segments
        # How many groups a segment has, and the segment of each group.
        counts = [-(-number // GROUP) for number in chunks.num_chunks.tolist()]
        owners = [segment for segment, count in enumerate(counts) for _ in range(count)]
        self.num_groups, self.owners, self.totals = (
            torch.tensor(values, dtype=torch.int32, device=device)
            for values in (counts, owners, chunks.segment_sizes)
        )

        def zeros(length: int, dtype: torch.dtype = torch.int32) -> Tensor:
            return torch.zeros(length, dtype=dtype, device=device)

        self.first_groups = self.num_groups.cumsum(0, dtype=torch.int32) - self.num_groups
        self.numbers, self.buffer = zeros(len(owners), torch.int64), zeros(len(owners) * SLOTS)
        self.equals, self.before, self.todo = (zeros(chunks.count) for _ in range(3))
        self.lows, self.highs = zeros(num, torch.int64), zeros(num, torch.int64)
        self.inside, self.fullest = zeros(num), zeros(num)
        self.prefixes, self.missing = zeros(num, torch.int64), zeros(num)
        self.counts, self.unsolved = zeros(num * 64), zeros(2)
        self.routes, self.is_tied = zeros(num), zeros(num)

    def select_(self, kept: Tensor) -> None:
        """Set the masks, and the copies; `kept` holds a number for each segment, on the device."""
        chunks = self.chunks
        tensors = (*self.sources, *chunks.layout)
        options = {**self.kinds, **chunks.options(num_warps=NUM_WARPS)}
        self._collect(kept)
        self._find()
        count_equals[(min(PROGRAMS, chunks.count),)](
            *tensors,
            chunks.segments,
            self.todo,
            self.prefixes,
            self.unsolved,
            self.equals,
            **options,
        )
        sum_equals[(chunks.num_segments,)](
            self.equals, self.before, self.is_tied, chunks.first, chunks.num_chunks, SPAN=SPAN
        )
        write_masks[(chunks.count,)](
            *self.sources,
            self.masks,
            *self.copied,
            *chunks.layout,
            chunks.segments,
            self.prefixes,
            self.missing,
            self.is_tied,
            self.before,
            **self.copying,
            **options,
        )

    def _collect(self, kept: Tensor) -> None:
        """Fill the slots, and note for each segment whether its k-th is among them."""
        chunks, each = self.chunks, (self.chunks.num_segments,)
        tensors = (*self.sources, *chunks.layout)
        bracket[each](
            *tensors,
            chunks.first,
            chunks.num_chunks,
            self.totals,
            kept,
            self.lows,
            self.highs,
            self.unsolved,
            LENGTH=LENGTH,
            SAMPLE=SAMPLE,
            num_warps=16,
            **self.kinds,
        )
        collect[(len(self.owners),)](
            *tensors,
            self.lows,
            self.highs,
            self.owners,
            self.first_groups,
            self.num_groups,
            chunks.first,
            chunks.num_chunks,
            self.numbers,
            self.buffer,
            GROUP=GROUP,
            SLOTS=SLOTS,
            **self.kinds,
            **chunks.options(num_warps=COLLECT_WARPS),
        )
        route[each](
            kept,
            self.totals,
            self.first_groups,
            self.num_groups,
            self.numbers,
            self.inside,
            self.fullest,
            self.prefixes,
            self.missing,
            self.routes,
            self.unsolved,
            chunks.first,
            chunks.num_chunks,
            self.todo,
            SLOTS=SLOTS,
            SPAN=SPAN,
        )

    def _find(self) -> None:
        """Find the k-th of each segment, digit by digit."""
        chunks, num_groups = self.chunks, len(self.owners)
        for shift, width in DIGITS:
            count_digits[(min(MOST_PROGRAMS, num_groups),)](
                *self.sources,
                *chunks.layout,
                chunks.segments,
                self.todo,
                self.owners,
                num_groups,
                self.numbers,
                self.buffer,
                self.routes,
                self.unsolved,
                self.prefixes,
                self.counts,
                SHIFT=shift,
                WIDTH=width,
                SLOTS=SLOTS,
                SPAN=SPAN,
                **self.kinds,
                **chunks.options(num_warps=SPAN_WARPS),
            )
            keep_digit[(chunks.num_segments,)](
                self.prefixes,
                self.missing,
                self.counts,
                self.is_tied,
                self.unsolved,
                chunks.first,
                chunks.num_chunks,
                self.todo,
                SHIFT=shift,
                WIDTH=width,
                SPAN=SPAN,
            )
