"""The queries, keys and values of an encoder's last layer, read by hooks while it runs.

They are what the layer's projections give, before any rotation by position, all attention heads side by side.
"""

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from bermo.encoders.families import FAMILIES, family_of
from bermo.encoders.sites import encoder_of, layers_of
from bermo.errors import BermoError


class Projections:
    """Hooks on a model's last layer that keep the queries, keys and values of the latest call."""

    def __init__(self, model: PreTrainedModel) -> None:
        config = encoder_of(model).config
        facts = family_of(config).projections
        if facts is None:
            known = sorted(name for name, family in FAMILIES.items() if family.projections is not None)
            raise BermoError(
                f"The queries, keys and values of {config.model_type} cannot be read, so it cannot teach or"
                f" learn relations. Set distill-relations to 0, or use one of: {', '.join(known)}."
            )
        self._paths = facts.paths
        self._outputs: dict[str, Tensor] = {}
        layer = layers_of(model)[-1]
        self._handles = [self._watch(layer.get_submodule(path), path) for path in self._paths]

    def _watch(self, module: nn.Module, path: str) -> RemovableHandle:
        # A layer that stands in for all (ALBERT's) is called once for each; the last call stays.
        def keep(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
            self._outputs[path] = output

        return module.register_forward_hook(keep)

    def take(self) -> list[Tensor]:
        """Return queries, keys and values (B, T, D) of the latest call, and let go of them."""
        outputs = [self._outputs[path] for path in self._paths if path in self._outputs]
        self._outputs.clear()
        return list(outputs[0].chunk(3, dim=-1)) if len(outputs) == 1 else outputs

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._outputs.clear()
