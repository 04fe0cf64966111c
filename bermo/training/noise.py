"""Dropout by the rows of a batch: each of several processes draws what one process would draw for its rows.

One process draws one number for each element of a whole batch. So each of several draws as many, in the same
order from the same seed, and takes those of its own rows; then their sum of gradients is that of one process.
This is for CPUs: on GPUs torch draws inside its kernels, and each process draws for itself.

Axes: B rows, H heads, T tokens.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from bermo.nn.fast.overrides import AttentionCall, FunctionOverrides, is_checkpointing
from bermo.nn.mix import LayerMix


class OwnRows(NamedTuple):
    """Which rows of a whole batch a process computes, and how many the batch has."""

    places: Tensor
    num_all: int
    num_texts: int = 1
    """Texts of a row: its choices, which the encoder reads as rows of their own."""


def can_draw_by_row(model: nn.Module, device: torch.device) -> bool:
    """Tell whether noise can be drawn by row: on a CPU, and where no pass is repeated outside a context."""
    return device.type == "cpu" and not is_checkpointing(model)


class RowNoise(FunctionOverrides):
    """In this context dropout, that of attention too, and noise over (B, K, V) are those of the own rows."""

    def __init__(self, rows: OwnRows, model: nn.Module) -> None:
        super().__init__()
        self.rows, self.axis = rows, 0
        self.mixes = [module for module in model.modules() if isinstance(module, LayerMix)]

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is functional.dropout:
            return self._dropout(*args, **kwargs)
        if func is torch.rand_like and args[0].ndim == 3:
            return self._own(args[0], torch.Tensor.uniform_)
        return super().__torch_function__(func, types, args, kwargs)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Draw by row while the block runs; a mix has the rows along the second axis of its stack."""
        hooks = [mix.register_forward_pre_hook(self._enter_mix) for mix in self.mixes]
        hooks += [mix.register_forward_hook(self._leave_mix, always_call=True) for mix in self.mixes]
        try:
            with self:
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def _enter_mix(self, module: nn.Module, arguments: Any) -> None:
        self.axis = 1

    def _leave_mix(self, module: nn.Module, arguments: Any, output: Any) -> None:
        self.axis = 0

    def _dropout(self, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or not 0 < p < 1:
            return functional.dropout(x, p, training, inplace)
        noise = self._own(x, lambda whole: whole.bernoulli_(1 - p)).div_(1 - p)
        return x.mul_(noise) if inplace else x * noise

    def attention(self, call: AttentionCall) -> Tensor | None:
        """The attention with the own rows' dropout, or None where nothing is dropped."""
        if call.p == 0:
            return None
        scores_BHTT, mask = call.q @ call.k.mT * call.scale, call.mask
        if call.is_causal:
            mask = torch.ones_like(scores_BHTT, dtype=torch.bool).tril_()
        if mask is not None and mask.dtype == torch.bool:
            scores_BHTT = scores_BHTT.masked_fill(~mask, -math.inf)
        elif mask is not None:
            scores_BHTT = scores_BHTT + mask
        return self._dropout(scores_BHTT.softmax(dim=-1), call.p) @ call.v

    def _own(self, x: Tensor, fill_: Callable[[Tensor], Tensor]) -> Tensor:
        """Fill a tensor as large as that of all rows, in the order of memory of `x`; return the own rows."""
        axis, places = self._row_axis(x), self.rows.places
        order = sorted(range(x.ndim), key=lambda dim: -x.stride()[dim])
        if axis is None:
            return fill_(torch.empty_permuted(x.shape, order, dtype=x.dtype))
        size = x.shape[axis] // len(places)
        shape = [*x.shape]
        shape[axis] = self.rows.num_all * size
        whole = fill_(torch.empty_permuted(shape, order, dtype=x.dtype))
        own = whole.unflatten(axis, (self.rows.num_all, size)).index_select(axis, places)
        return own.flatten(axis, axis + 1)

    def _row_axis(self, x: Tensor) -> int | None:
        """Return the axis of the rows; None for what all rows share, such as vectors of distances."""
        size, num_own = x.shape[self.axis], len(self.rows.places)
        has_rows = size % num_own == 0 if x.ndim > 2 else size in (num_own, num_own * self.rows.num_texts)
        return self.axis if has_rows else None
