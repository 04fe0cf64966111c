"""Gradients of vectors (biases, γ, β) whose sums over rows are made at the end of the backward pass.

Each layer leaves partial sums, (groups, parts, kinds, size), in its place of one block for all layers of its
kind. When autograd is done, one launch a kind adds them all up and gives them to the leaves, where a launch
a layer would cost more than it reads. The sums are those of `sum_parts` in each layer, to the bit.
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


class Late:
    """The partial sums of one pass; every place is taken in the forward pass."""

    def __init__(self) -> None:
        self.targets: dict[Any, list[Targets]] = {}
        self.blocks: dict[Any, Tensor] = {}
        self.done: list[Place] = []

    def take(self, shape: tuple[int, int, int, int], targets: Targets) -> Place:
        """Take a place for partial sums of this shape, whose totals are the leaves' gradients."""
        key = (shape, tuple(leaves[0].dtype for leaves in targets), targets[0][0].device)
        self.targets.setdefault(key, []).append(targets)
        return Place(key, len(self.targets[key]) - 1)

    def parts(self, place: Place) -> Tensor:
        """The memory of a place, to be filled by the backward pass that asks for it."""
        shape, _, device = place.key
        if place.key not in self.blocks:
            count = len(self.targets[place.key])
            self.blocks[place.key] = torch.empty(count, *shape, dtype=torch.float32, device=device)
        if not self.done:
            engine: Any = torch.autograd.Variable._execution_engine
            engine.queue_callback(self._finish)
        self.done.append(place)
        return self.blocks[place.key][place.number]

    @torch.no_grad()
    def _finish(self) -> None:
        """Add up the parts of all layers, one launch for each kind of layer."""
        done, blocks = self.done, self.blocks
        self.done, self.blocks = [], {}
        for key, block in blocks.items():
            (groups, _, _, size), dtypes, _ = key
            totals = [block.new_empty(len(block) * groups, size, dtype=dtype) for dtype in dtypes]
            sum_parts(block.flatten(0, 1), totals)
            for place in done:
                if place.key == key:
                    own = [total.view(len(block), groups, size)[place.number] for total in totals]
                    _give(self.targets[key][place.number], own)


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
