"""Triton kernels over many tensors in one launch, for graphics cards. Each has a twin in plain torch, named beside it.

    mask_copy_  W̃ = M ⊙ W in the working dtype                                       twin: Shadow's loop
    mask_grads  dW = M ⊙ G and dS = G ⊙ W                                            twin: Shadow's loop

`Chunks` says how a list of tensors is cut into pieces, and the functions above it how a program finds its piece;
`nn.select` chooses the highest scores with them.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

CHUNK = 8192
IS_INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


@triton.jit
def sigmoid(value):
    """1 / (1 + exp(−x)), rounded as torch rounds it on a card: tl.exp is less exact there than libdevice's."""
    raised = tl.exp(-value) if IS_INTERPRETED else libdevice.exp(-value)
    return tl.math.div_rn(1.0, 1.0 + raised)


@triton.jit
def slope_of_size(value):
    """σ'(x)."""
    size = sigmoid(value)
    return size * (1.0 - size)


@triton.jit
def places_of(chunk, tensors, starts, sizes, EVEN: tl.constexpr, LENGTH: tl.constexpr):
    """Of a chunk: the number of its tensor, its places in it, and which of them exist."""
    tensor = tl.load(tensors + chunk)
    start, size = tl.load(starts + chunk), tl.load(sizes + tensor)
    if EVEN:  # lets the compiler load 16 bytes at a time
        start, size = tl.multiple_of(start, 16), tl.multiple_of(size, 16)
    places = start + tl.arange(0, LENGTH)
    return tensor, places, places < size


@triton.jit
def pointer_at(table, tensor, KIND: tl.constexpr, EVEN: tl.constexpr):
    """A pointer to a tensor's values of a kind, from a table of addresses."""
    pointer = tl.load(table + tensor).to(tl.pointer_type(KIND))
    if EVEN:  # said of the pointer: the compiler forgets what it knew of the number it was made from
        pointer = tl.multiple_of(pointer, 16)
    return pointer


@triton.jit
def values_at(table, tensor, places, exists, EVEN: tl.constexpr):
    """The values at places of a tensor, 0 where there is none."""
    base = pointer_at(table, tensor, tl.float32, EVEN)
    return tl.load(base + places, mask=exists, other=0.0)


@triton.jit
def _copy_masked(
    weights,
    masks,
    copies,
    tensors,
    starts,
    sizes,
    HALF: tl.constexpr,
    EVEN: tl.constexpr,
    LENGTH: tl.constexpr,
):
    tensor, places, exists = places_of(tl.program_id(0), tensors, starts, sizes, EVEN, LENGTH)
    weight = values_at(weights, tensor, places, exists, EVEN)
    source = pointer_at(masks, tensor, tl.int8, EVEN)
    # A product and not a choice: where the mask is 0 the sign of zero is the twin's.
    masked = weight * tl.load(source + places, mask=exists, other=0).to(tl.float32)
    if HALF:
        target = pointer_at(copies, tensor, tl.bfloat16, EVEN)
        tl.store(target + places, masked.to(tl.bfloat16), mask=exists)
    else:
        target = pointer_at(copies, tensor, tl.float32, EVEN)
        tl.store(target + places, masked, mask=exists)


@triton.jit
def _write_grads(
    weights,
    masks,
    grads,
    weight_grads,
    score_grads,
    offsets,
    tensors,
    starts,
    sizes,
    SCORED: tl.constexpr,
    EVEN: tl.constexpr,
    LENGTH: tl.constexpr,
):
    tensor, places, exists = places_of(tl.program_id(0), tensors, starts, sizes, EVEN, LENGTH)
    offset = tl.multiple_of(tl.load(offsets + tensor), 16)
    grad = tl.load(grads + offset + places, mask=exists, other=0.0).to(tl.float32)
    source = pointer_at(masks, tensor, tl.int8, EVEN)
    mask = tl.load(source + places, mask=exists, other=0).to(tl.float32)
    tl.store(weight_grads + offset + places, grad * mask, mask=exists)
    if SCORED:
        weight = values_at(weights, tensor, places, exists, EVEN)
        tl.store(score_grads + offset + places, grad * weight, mask=exists)


@triton.jit
def _write_one(place):
    tl.store(place, 1.0)


def try_one(device: torch.device) -> None:
    """Build the smallest kernel and run it; raises whatever goes wrong."""
    place = torch.zeros(1, device=device)
    _write_one[(1,)](place)
    if place.item() != 1.0:
        raise RuntimeError("a kernel that writes 1 has written something else")


class Chunks:
    """How a list of tensors is cut into chunks, one program each, and where each would lie in one flat buffer.

    Neighbouring tensors may form a segment; without `segments` each tensor is one of its own.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        device: torch.device,
        segments: Sequence[int] | None = None,
        length: int = CHUNK,
    ) -> None:
        owners = list(range(len(sizes)) if segments is None else segments)
        tensors = [place for place, size in enumerate(sizes) for _ in range(0, size, length)]
        starts = [start for size in sizes for start in range(0, size, length)]
        padded = [-(-size // 16) * 16 for size in sizes]
        self.places = list(accumulate(padded, initial=0))[:-1]
        self.total, self.count, self.length = sum(padded), len(tensors), length
        self.is_even = all(size % 16 == 0 for size in sizes)
        self.num_segments = owners[-1] + 1
        self.segment_sizes, num_chunks = [0] * self.num_segments, [0] * self.num_segments
        for owner, size in zip(owners, sizes, strict=True):
            self.segment_sizes[owner] += size
            num_chunks[owner] += -(-size // length)

        def table(values: Sequence[int], dtype: torch.dtype = torch.int32) -> Tensor:
            return torch.tensor(values, dtype=dtype, device=device)

        self.layout = (table(tensors), table(starts), table(sizes))
        self.segments, self.offsets = table(owners), table(self.places, torch.int64)
        self.num_chunks = table(num_chunks)
        self.first = table(list(accumulate(num_chunks, initial=0))[:-1])

    def look_at(self, *tables: Tensor) -> None:
        """Mind tensors that do not start at a multiple of 16 bytes; once, when tables of addresses are made."""
        self.is_even = self.is_even and not any(bool((table % 16).any()) for table in tables)

    def options(self, num_warps: int = 8) -> dict[str, Any]:
        return {"EVEN": self.is_even, "LENGTH": self.length, "num_warps": num_warps}


def addresses(tensors: Sequence[Tensor]) -> Tensor:
    """Where tensors lie in memory, as a table on their device; they must stay there."""
    assert all(tensor.is_contiguous() for tensor in tensors)
    places = [tensor.data_ptr() for tensor in tensors]
    return torch.tensor(places, dtype=torch.int64, device=tensors[0].device)


def mask_copy_(chunks: Chunks, weights: Tensor, masks: Tensor, copies: Tensor, half: bool) -> None:
    """Write M ⊙ W of all tensors into their copies, in one launch; the three are tables of addresses."""
    _copy_masked[(chunks.count,)](weights, masks, copies, *chunks.layout, HALF=half, **chunks.options())


def mask_grads(
    chunks: Chunks, weights: Tensor, masks: Tensor, grads: Sequence[Tensor], is_scored: bool
) -> tuple[list[Tensor], list[Tensor]]:
    """Return dW = M ⊙ G and, where there are scores, dS = G ⊙ W of all tensors, flat, from one pass."""
    device = grads[0].device
    flat = torch.empty(chunks.total, dtype=grads[0].dtype, device=device)
    # The gradients' addresses are new each time; a table of them could not be captured, but this copy can.
    torch._foreach_copy_(views(flat, chunks, grads), [grad.flatten() for grad in grads])
    weight_grads = torch.empty(chunks.total, dtype=torch.float32, device=device)
    score_grads = torch.empty_like(weight_grads) if is_scored else weight_grads
    _write_grads[(chunks.count,)](
        weights,
        masks,
        flat,
        weight_grads,
        score_grads,
        chunks.offsets,
        *chunks.layout,
        SCORED=is_scored,
        **chunks.options(),
    )
    scores = views(score_grads, chunks, grads) if is_scored else []
    return views(weight_grads, chunks, grads), scores


def views(flat: Tensor, chunks: Chunks, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Where tensors lie in one flat buffer."""
    return [
        flat[place : place + tensor.numel()] for place, tensor in zip(chunks.places, tensors, strict=True)
    ]
