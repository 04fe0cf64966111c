"""Layers that stand in for each other at random: BERT-of-Theseus (Xu et al. 2020).

h_i = r_i · successor_i(h_{i−1}) + (1 − r_i) · predecessors_i(h_{i−1}),   r_i ~ Bernoulli(p), drawn each step
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn


class Replacement:
    """A forward hook of a successor's layer: in training, its output is the predecessors' where r is 0.

    The predecessors are called as the layer was, one after the other, and are no part of its model. Both
    sides are computed on a GPU, where the draw is a number on the device, so that the step can be captured.
    """

    def __init__(self, predecessors: Sequence[nn.Module]) -> None:
        self.predecessors = tuple(predecessors)
        self.is_replaced = torch.ones((), dtype=torch.bool)

    def set_(self, is_replaced: bool, device: torch.device) -> None:
        """Choose the side of the next step."""
        if self.is_replaced.device != device:
            self.is_replaced = self.is_replaced.to(device)
        self.is_replaced.fill_(is_replaced)

    def __call__(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        if not layer.training or (self.is_replaced.device.type == "cpu" and self.is_replaced):
            return None
        other = _first(self._run(args, kwargs))
        chosen = torch.where(self.is_replaced, _first(output), other)
        return (chosen, *output[1:]) if isinstance(output, tuple) else chosen

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        output: Any = None
        for layer in self.predecessors:
            output = layer(*args, **kwargs)
            if args:
                args = (_first(output), *args[1:])
            else:
                kwargs = {**kwargs, "hidden_states": _first(output)}
        return output


def _first(output: Any) -> Tensor:
    return cast(Tensor, output[0] if isinstance(output, tuple) else output)
