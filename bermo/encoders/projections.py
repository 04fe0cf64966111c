"""The queries, keys and values of an encoder's last layer, or of every one, read by hooks while it runs.

They are what the layer's projections give, before any rotation by position, all attention heads side by side.
"""

from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from bermo.encoders.families import FAMILIES, family_of
from bermo.encoders.sites import encoder_of, layers_of
from bermo.errors import BermoError


class Projections:
    """Hooks on a model's layers that keep the queries, keys and values of the latest call."""

    def __init__(self, model: PreTrainedModel, is_every: bool = False) -> None:
        encoder = encoder_of(model)
        config = encoder.config
        facts = family_of(config).projections
        if facts is None:
            known = sorted(name for name, family in FAMILIES.items() if family.projections is not None)
            raise BermoError(
                f"The queries, keys and values of {config.model_type} cannot be read, so it cannot teach or"
                " learn relations or attention. Set distill-relations to 0 and leave attention out, or use"
                f" one of: {', '.join(known)}."
            )
        self._paths = facts.paths
        layers = layers_of(model) if is_every else layers_of(model)[-1:]
        self._calls: list[dict[str, list[Tensor]]] = [{path: [] for path in self._paths} for _ in layers]
        # One layer that stands in for all (ALBERT's) is called once for each.
        self._is_shared = is_every and len(layers) == 1
        self._handles = [encoder.register_forward_pre_hook(self._restart)]
        for layer, calls in zip(layers, self._calls, strict=True):
            self._handles += [self._watch(layer.get_submodule(path), calls[path]) for path in self._paths]

    def _restart(self, encoder: nn.Module | None = None, arguments: Any = None) -> None:
        for calls in self._calls:
            for outputs in calls.values():
                outputs.clear()

    def _watch(self, module: nn.Module, outputs: list[Tensor]) -> RemovableHandle:
        def keep(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
            outputs.append(output)

        return module.register_forward_hook(keep)

    def take(self) -> list[Tensor]:
        """Return queries, keys and values (B, T, D) of the last layer in the latest call, and let go."""
        return self.take_all()[-1]

    def take_all(self) -> list[list[Tensor]]:
        """Return queries, keys and values of each layer that is watched, and let go of them."""
        if self._is_shared:
            layers = [list(outputs) for outputs in zip(*self._calls[0].values(), strict=True)]
        else:
            layers = [[outputs[-1] for outputs in calls.values() if outputs] for calls in self._calls]
        self._restart()
        return [list(one[0].chunk(3, dim=-1)) if len(one) == 1 else one for one in layers]

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._restart()
