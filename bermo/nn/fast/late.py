"""Gradients of vectors (biases, γ, β) whose sums over rows are made at the end of the backward pass.

Each layer leaves partial sums, (groups, parts, kinds, size), in its place of one block for all layers of its
kind. When autograd is done, one launch a kind adds them all up and gives them to the leaves, where a launch
a layer would cost more than it reads. The sums are those of `sum_parts` in each layer, to the bit.

A product of queries, keys and values in one tensor is `expected` to be read by an attention that writes the
product's gradient and its sums itself, and `hand`s it over.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bermo.nn.fast.residual_kernels import sum_parts

Targets = Sequence[Sequence[Tensor]]
"""The leaves of each kind; where there are several, they share a sum that lies side by side."""


class Place(NamedTuple):
    """Where the partial sums of one layer are: of which kind of layer, and the how manieth of these."""

    key: Any
    number: int


class Room(NamedTuple):
    """Memory of a place: what it is a part of, and its number there."""

    key: Any
    """The place's, with another number of parts where more or fewer were asked for."""
    place: Place


class Late:
    """The partial sums of one pass; every place is taken in the forward pass."""

    def __init__(self) -> None:
        self.targets: dict[Any, list[Targets]] = {}
        self.blocks: dict[Any, Tensor] = {}
        self.done: list[Room] = []
        # By the address of a product, and of a gradient; each is kept, so that no other comes to lie there.
        self.products: dict[int, tuple[Tensor, Place]] = {}
        self.gradients: dict[int, tuple[Tensor, Room]] = {}

    def take(self, shape: tuple[int, int, int, int], targets: Targets) -> Place:
        """Take a place for partial sums of this shape, whose totals are the leaves' gradients."""
        key = (shape, tuple(leaves[0].dtype for leaves in targets), targets[0][0].device)
        self.targets.setdefault(key, []).append(targets)
        return Place(key, len(self.targets[key]) - 1)

    def parts(self, place: Place) -> Tensor:
        """The memory of a place, to be filled by the backward pass that asks for it."""
        room = Room(place.key, place)
        self._finish_later(room)
        return self._memory(room)

    def expect(self, product: Tensor, place: Place) -> None:
        """Note the place of the sums of a product's gradient, for who may make both."""
        self.products[product.data_ptr()] = product, place

    def expected(self, product: Tensor) -> Place | None:
        """The place of the sums of a product's gradient; None where nobody waits for them."""
        _, place = self.products.pop(product.data_ptr(), (None, None))
        return place

    def hand(self, gradient: Tensor, place: Place, num_parts: int) -> Tensor:
        """The memory for the sums of a product's gradient, which is to be taken by its reader."""
        groups, _, kinds, size = place.key[0]
        room = Room(((groups, num_parts, kinds, size), *place.key[1:]), place)
        self.gradients[gradient.data_ptr()] = gradient, room
        return self._memory(room)

    def take_handed(self, parts: Sequence[Tensor]) -> Tensor | None:
        """The gradient that was handed over, if these are its parts; its sums are made at the end."""
        gradient, room = self.gradients.pop(parts[0].data_ptr(), (None, None))
        if gradient is None or room is None:
            return None
        whole = gradient.view(*parts[0].shape[:-1], -1).chunk(len(parts), -1)
        if any(
            (a.data_ptr(), a.stride()) != (b.data_ptr(), b.stride())
            for a, b in zip(parts, whole, strict=True)
        ):
            return None
        self._finish_later(room)
        return gradient

    def _memory(self, room: Room) -> Tensor:
        shape, _, device = room.key
        if room.key not in self.blocks:
            count = len(self.targets[room.place.key])
            self.blocks[room.key] = torch.empty(count, *shape, dtype=torch.float32, device=device)
        return self.blocks[room.key][room.place.number]

    def _finish_later(self, room: Room) -> None:
        if not self.done:
            engine: Any = torch.autograd.Variable._execution_engine
            engine.queue_callback(self._finish)
        self.done.append(room)

    @torch.no_grad()
    def _finish(self) -> None:
        """Add up the parts of all layers, one launch for each kind of layer."""
        done, blocks = self.done, self.blocks
        self.done, self.blocks = [], {}
        for key, block in blocks.items():
            (groups, _, _, size), dtypes, _ = key
            totals = [block.new_empty(len(block) * groups, size, dtype=dtype) for dtype in dtypes]
            sum_parts(block.flatten(0, 1), totals)
            for room in done:
                if room.key == key:
                    number = room.place.number
                    own = [total.view(len(block), groups, size)[number] for total in totals]
                    _give(self.targets[room.place.key][number], own)


def _give(targets: Targets, totals: Sequence[Tensor]) -> None:
    for leaves, total in zip(targets, totals, strict=True):
        for leaf, part in zip(leaves, total.chunk(len(leaves), -1), strict=True):
            grad = part.reshape(leaf.shape)
            leaf.grad = grad if leaf.grad is None else leaf.grad + grad


def can_wait(*leaves: Tensor | None) -> bool:
    """Tell whether these, where they are given, are leaves whose gradients nothing watches on their way."""
    return all(
        leaf is None
        or (
            leaf.is_leaf
            and leaf.requires_grad
            and not leaf._backward_hooks
            and not leaf._post_accumulate_grad_hooks
        )
        for leaf in leaves
    )
