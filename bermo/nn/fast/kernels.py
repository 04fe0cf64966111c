"""Triton kernels for GPUs that read many tensors in one launch; beside each stands its twin in plain torch.

    mask_copy_  W̃ = M ⊙ W in the working dtype                           twin: Shadow's loop
    mask_grads  dW = M ⊙ G and dS = G ⊙ W                                twin: Shadow's loop

`Chunks` divides a list of tensors into chunks, one for each program; the first functions below tell a program
which elements its chunk has. `nn.fast.select` and `nn.fast.score_kernels` are built on them.
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
LARGEST = 2**31
"""Kernels count elements in 32 bits."""
IS_INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


@triton.jit
def sigmoid(value):
    """1 / (1 + exp(−x)), rounded as torch rounds it on a GPU: tl.exp is less exact than libdevice's."""
    raised = tl.exp(-value) if IS_INTERPRETED else libdevice.exp(-value)
    return tl.math.div_rn(1.0, 1.0 + raised)


@triton.jit
def slope_of_size(value):
    """σ'(x)."""
    size = sigmoid(value)
    return size * (1.0 - size)


@triton.jit
def elements_of(chunk, tensors, starts, sizes, EVEN: tl.constexpr, LENGTH: tl.constexpr):
    """Of a chunk: the number of its tensor, the indices of its elements there, and which of them exist."""
    tensor = tl.load(tensors + chunk)
    start, size = tl.load(starts + chunk), tl.load(sizes + tensor)
    if EVEN:
        # Lets the compiler load 16 bytes at a time.
        start, size = tl.multiple_of(start, 16), tl.multiple_of(size, 16)
    index = start + tl.arange(0, LENGTH)
    return tensor, index, index < size


@triton.jit
def pointer_at(table, tensor, KIND: tl.constexpr, EVEN: tl.constexpr):
    """A pointer to a tensor's values of a kind, from a table of addresses."""
    pointer = tl.load(table + tensor).to(tl.pointer_type(KIND))
    if EVEN:
        # Said of the pointer, because the compiler forgets what it knew of the number.
        pointer = tl.multiple_of(pointer, 16)
    return pointer


@triton.jit
def values_at(table, tensor, index, exists, EVEN: tl.constexpr):
    """The elements of a tensor at some indices, 0 where there is none."""
    base = pointer_at(table, tensor, tl.float32, EVEN)
    return tl.load(base + index, mask=exists, other=0.0)


@triton.jit
def write_copy(copies, tensor, index, exists, value, HALF: tl.constexpr, EVEN: tl.constexpr):
    """Write elements of a tensor's copy, in float32 or (HALF) bfloat16."""
    if HALF:
        target = pointer_at(copies, tensor, tl.bfloat16, EVEN)
        tl.store(target + index, value.to(tl.bfloat16), mask=exists)
    else:
        target = pointer_at(copies, tensor, tl.float32, EVEN)
        tl.store(target + index, value, mask=exists)


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
    """W̃ = M ⊙ W of a chunk, in float32 or (HALF) bfloat16."""
    tensor, index, exists = elements_of(tl.program_id(0), tensors, starts, sizes, EVEN, LENGTH)
    weight = values_at(weights, tensor, index, exists, EVEN)
    source = pointer_at(masks, tensor, tl.int8, EVEN)
    # A product and not a choice: where the mask is 0 the sign of zero is the twin's.
    masked = weight * tl.load(source + index, mask=exists, other=0).to(tl.float32)
    write_copy(copies, tensor, index, exists, masked, HALF, EVEN)


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
    """dW = M ⊙ G and, with SCORED, dS = G ⊙ W of a chunk; all three lie in flat buffers."""
    tensor, index, exists = elements_of(tl.program_id(0), tensors, starts, sizes, EVEN, LENGTH)
    offset = tl.multiple_of(tl.load(offsets + tensor), 16)
    grad = tl.load(grads + offset + index, mask=exists, other=0.0).to(tl.float32)
    source = pointer_at(masks, tensor, tl.int8, EVEN)
    mask = tl.load(source + index, mask=exists, other=0).to(tl.float32)
    tl.store(weight_grads + offset + index, grad * mask, mask=exists)
    if SCORED:
        weight = values_at(weights, tensor, index, exists, EVEN)
        tl.store(score_grads + offset + index, grad * weight, mask=exists)


@triton.jit
def _write_one(target):
    tl.store(target, 1.0)


def try_one(device: torch.device) -> None:
    """Build the smallest kernel and run it; raises whatever goes wrong."""
    target = torch.zeros(1, device=device)
    _write_one[(1,)](target)
    if target.item() != 1.0:
        raise RuntimeError("a kernel that writes 1 has written something else")


def runs_on(device: torch.device, dtype: torch.dtype) -> bool:
    """Tell whether a device runs kernels with products: Triton's interpreter multiplies bfloat16's bits as
    integers.
    """
    is_half = dtype == torch.bfloat16
    return is_half if device.type == "cuda" else bool(triton.knobs.runtime.interpret) and not is_half


class Chunks:
    """How a list of tensors is divided into chunks, one program each, and where each starts in a flat buffer.

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
        tensors = [index for index, size in enumerate(sizes) for _ in range(0, size, length)]
        starts = [start for size in sizes for start in range(0, size, length)]
        padded = [-(-size // 16) * 16 for size in sizes]
        self.buffer_starts = list(accumulate(padded, initial=0))[:-1]
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
        self.segments, self.offsets = table(owners), table(self.buffer_starts, torch.int64)
        self.num_chunks = table(num_chunks)
        self.first = table(list(accumulate(num_chunks, initial=0))[:-1])

    def check_alignment(self, *tables: Tensor) -> None:
        """Forbid loads of 16 bytes if a tensor does not start at a multiple of 16; once for each table."""
        self.is_even = self.is_even and not any(bool((table % 16).any()) for table in tables)

    def options(self, num_warps: int = 8) -> dict[str, Any]:
        return {"EVEN": self.is_even, "LENGTH": self.length, "num_warps": num_warps}


def addresses(tensors: Sequence[Tensor]) -> Tensor:
    """The addresses of tensors, as a table on their device; the tensors may not be moved afterwards."""
    assert all(tensor.is_contiguous() for tensor in tensors)
    pointers = [tensor.data_ptr() for tensor in tensors]
    return torch.tensor(pointers, dtype=torch.int64, device=tensors[0].device)


def mask_copy_(chunks: Chunks, weights: Tensor, masks: Tensor, copies: Tensor, half: bool) -> None:
    """Write M ⊙ W of all tensors into their copies, in one launch; the three are tables of addresses."""
    _copy_masked[(chunks.count,)](weights, masks, copies, *chunks.layout, HALF=half, **chunks.options())


def mask_grads(
    chunks: Chunks, weights: Tensor, masks: Tensor, grads: Sequence[Tensor], is_scored: bool
) -> tuple[list[Tensor], list[Tensor]]:
    """Return dW = M ⊙ G and, where there are scores, dS = G ⊙ W of all tensors, flat, from one pass."""
    device = grads[0].device
    flat = torch.empty(chunks.total, dtype=grads[0].dtype, device=device)
    # The gradients' addresses are new each time: a captured graph cannot build a table of them, but can copy.
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
    """Each tensor's part of one flat buffer."""
    return [
        flat[start : start + tensor.numel()]
        for start, tensor in zip(chunks.buffer_starts, tensors, strict=True)
    ]
