"""Fused layers that normalise what they read (pre-norm), for a `Fusion` (fuse.py).

    x ← x + dropout(attention(norm₁(x)))      x ← x + dropout(feed_forward(norm₂(x)))

Each sum is computed together with the norm that reads it: norm₂, and after the feed-forward norm₁ of the
layer that follows, which finds its result waiting. The dropout and the bias at the end of a block are left
to the sum, while the layer runs the block. The first norm, the last sum and the final norm stay torch's.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

from bermo.encoders.windows import NAME
from bermo.nn.fast.long import Sight, attend_long
from bermo.training.fusible import PreNorm, has_hooks, is_gated, is_product, is_rotary, pre_norm
from bermo.training.parts import Parts

Forward = Callable[..., Any]
UNKNOWN = ("past_key_values", "encoder_hidden_states")
"""Arguments of a layer with which it does more than is computed here."""


@dataclass
class End:
    """The last modules of a block, and what they left to the sum in this pass."""

    dense: nn.Module
    dropout: nn.Module | None
    seed: int
    is_open: bool = False
    output: Tensor | None = None
    bias: Tensor | None = None
    p: float = 0.0

    def can_open(self) -> bool:
        """Tell whether the sum can drop as the modules would, and nothing observes what they return."""
        known = self.dropout
        is_plain = known is None or (type(known) is nn.Dropout and known.p < 1 and not has_hooks(known))
        return is_plain and not has_hooks(self.dense)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Leave dropout and bias to the sum in this block."""
        self.take()
        self.is_open = self.can_open()
        try:
            yield
        finally:
            self.is_open = False

    def take(self) -> tuple[Tensor | None, Tensor | None, float]:
        """Return what was left to the sum, and keep none of it."""
        left = self.output, self.bias, self.p
        self.output, self.bias, self.p = None, None, 0.0
        return left


class Normed(NamedTuple):
    """A sum, its version, the norm that it was computed with, and the result."""

    x: Tensor
    version: int
    norm: nn.Module
    y: Tensor


class PreNormLayers:
    """The fused forwards of pre-norm layers, and of the modules in them."""

    def __init__(
        self, parts: Parts, has_products: bool, *, has_sums: bool, has_gates: bool, has_angles: bool
    ) -> None:
        self.parts, self.has_products, self.has_sums = parts, has_products, has_sums
        self.has_gates, self.has_angles = has_gates, has_angles
        # By the id of a sum.
        self.waiting: dict[int, Normed] = {}

    def clear(self) -> None:
        """Forget what was computed in a pass."""
        self.waiting.clear()

    def overrides(self, layers: nn.ModuleList) -> Iterator[tuple[nn.Module, Forward]]:
        """Yield the modules of a list of layers that are computed here, each with its forward."""
        found = [(layer, names) for layer in layers if (names := pre_norm(layer)) is not None]
        for (layer, names), following in zip_longest(found, found[1:]):
            ends: dict[int, End] = {}
            if self.has_sums:
                blocks = zip(
                    *(names.children(layer, few) for few in (names.denses, names.dropouts)), strict=True
                )
                pair = [End(dense, dropout, self.parts.next_seed()) for dense, dropout in blocks]
                ends = {id(end.dense): end for end in pair}
                norm = (
                    None if following is None else following[1].children(following[0], following[1].norms)[0]
                )
                yield layer, self._layer(layer, names, pair, norm)
                yield from (
                    (end.dropout, self._dropout(end)) for end in pair if type(end.dropout) is nn.Dropout
                )
            yield from self._inner(layer, ends)

    def _inner(self, layer: nn.Module, ends: dict[int, End]) -> Iterator[tuple[nn.Module, Forward]]:
        for module in layer.modules():
            if self.has_products and is_product(module):
                yield module, self._product(cast(nn.Linear, module), ends.get(id(module)))
            if self.has_gates and is_gated(module):
                yield module, self._gated(module)
            if self.has_angles and is_rotary(module):
                yield module, self._rotary(module)

    def _layer(self, layer: nn.Module, names: PreNorm, ends: list[End], following: Any) -> Forward:
        from bermo.nn.fast.residual import fits_kernels

        signature = inspect.signature(type(layer).forward)
        first, second = names.children(layer, names.norms)
        attention, feed_forward = (layer.get_submodule(name) for name in names.blocks)

        def forward(hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            given = signature.bind(layer, hidden_states, *args, **kwargs).arguments
            is_known = all(given.get(name) is None for name in UNKNOWN)
            x = hidden_states
            if not is_known or x.dtype != torch.float32 or not fits_kernels(x):
                return cast(Tensor, type(layer).forward(layer, hidden_states, *args, **kwargs))
            others = {**given.pop("kwargs", {}), **given}
            options = {name: value for name, value in others.items() if name not in ("self", "hidden_states")}
            y = x if first is None else self._normed(first, x)
            x, y = self._add(ends[0], lambda: attention(y, **options)[0], x, second)
            if following is None:
                return x + cast(Tensor, feed_forward(y))
            x, y = self._add(ends[1], lambda: feed_forward(y), x, following)
            self.waiting[id(x)] = Normed(x, x._version, following, y)
            return x

        return forward

    def _normed(self, norm: nn.Module, x: Tensor) -> Tensor:
        """Return the norm of a sum, as it was computed with the sum if it was."""
        known = self.waiting.pop(id(x), None)
        if known is not None and known.norm is norm and known.version == x._version:
            return known.y
        return cast(Tensor, norm(x))

    def _add(
        self, end: End, block: Callable[[], Tensor], x: Tensor, norm: nn.LayerNorm
    ) -> tuple[Tensor, Tensor]:
        """Return x + dropout(block()), and what the norm makes of it."""
        from bermo.nn.fast.prenorm import add_and_norm

        if has_hooks(norm):
            x = x + block()
            return x, norm(x)
        with end.opened():
            h = block()
        output, bias, p = end.take()
        if (p > 0 or bias is not None) and h is not output:
            raise RuntimeError("a block of a layer does not return what its last module returned")
        scale, shift, seed = norm.weight, norm.bias, self.parts.seed(end.seed)
        return add_and_norm(h, x, scale, shift, bias, seed, p, norm.eps, self.parts.dtype, self.parts.late())

    def _dropout(self, end: End) -> Forward:
        dropout = cast(nn.Dropout, end.dropout)

        def forward(x: Tensor) -> Tensor:
            if not end.is_open:
                return type(dropout).forward(dropout, x)
            end.output, end.p = x, dropout.p if dropout.training else 0.0
            return x

        return forward

    def _product(self, dense: nn.Linear | Conv1D, end: End | None) -> Forward:
        from bermo.nn.fast.product import product

        def forward(x: Tensor) -> Tensor:
            weight, bias = dense.weight, dense.bias
            if not self._are_copies(weight, bias):
                return cast(Tensor, type(dense).forward(cast(Any, dense), x))
            is_open = end is not None and end.is_open and bias is not None
            x, target = self.parts.cast(x), self.parts.grad_buffer((weight,))
            h = product(x, weight, bias.detach() if is_open else bias, target, isinstance(dense, Conv1D))
            if end is not None and is_open:
                end.output, end.bias = h, bias
            return h

        return forward

    def _gated(self, module: Any) -> Forward:
        from bermo.nn.fast.gated import gated_gelu

        def forward(hidden_states: Tensor) -> Tensor:
            return cast(Tensor, module.Wo(module.drop(gated_gelu(module.Wi(hidden_states)))))

        return forward

    def _rotary(self, module: Any) -> Forward:
        from bermo.nn.fast.rotary import rotated_three

        def forward(
            hidden_states: Tensor,
            position_embeddings: tuple[Tensor, Tensor] | None = None,
            attention_mask: Tensor | Sight | None = None,
            **others: Any,
        ) -> tuple[Tensor, Tensor | None]:
            weight, bias = module.Wqkv.weight, module.Wqkv.bias
            is_plain = module.config._attn_implementation in ("sdpa", NAME) and not has_hooks(module.Wqkv)
            if position_embeddings is None or not is_plain or not self._are_copies(weight, bias):
                arguments = (hidden_states, position_embeddings, attention_mask)
                return cast(Any, type(module).forward(module, *arguments, **others))
            x, target = self.parts.cast(hidden_states), self.parts.grad_buffer((weight,))
            heads = len(weight) // (3 * module.head_dim)
            three = rotated_three(x, weight, bias, target, *position_embeddings, heads)
            q, k, v = (one.transpose(1, 2) for one in three)
            p, scale = module.attention_dropout if module.training else 0.0, module.head_dim**-0.5
            if isinstance(attention_mask, Sight):
                seen = attend_long(q, k, v, attention_mask, p, scale)
            else:
                given = {"attn_mask": attention_mask, "dropout_p": p, "scale": scale}
                seen = functional.scaled_dot_product_attention(q, k, v, **given)
            return module.out_drop(module.Wo(seen.transpose(1, 2).flatten(2))), None

        return forward

    def _are_copies(self, weight: Tensor, bias: Tensor | None) -> bool:
        """Tell whether these are copies in the working dtype that take gradients."""
        tensors = (weight,) if bias is None else (weight, bias)
        return all(one.dtype == self.parts.dtype and one.requires_grad for one in tensors)
