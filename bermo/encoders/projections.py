"""The queries, keys and values of an encoder's last layer, read by hooks while it runs.

They are what the layer's projections give, before any rotation by position, all attention heads side by side.
"""

from collections.abc import Mapping

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from bermo.encoders.sites import encoder_of, layers_of
from bermo.errors import BermoError

PLACES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("bert", "ernie", "roberta", "xlm-roberta", "camembert", "electra", "mobilebert"),
        ("attention.self.query", "attention.self.key", "attention.self.value"),
    ),
    "albert": ("attention.query", "attention.key", "attention.value"),
    "distilbert": ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    "mpnet": ("attention.attn.q", "attention.attn.k", "attention.attn.v"),
    "deberta-v2": (
        "attention.self.query_proj",
        "attention.self.key_proj",
        "attention.self.value_proj",
    ),
    # One matrix for all three, side by side.
    "modernbert": ("attn.Wqkv",),
    "gpt2": ("attn.c_attn",),
}
"""Where a layer has its three projections; DeBERTa and XLNet have none that gives them whole."""


class Projections:
    """Hooks on a model's last layer that keep the queries, keys and values of the latest call."""

    def __init__(self, model: PreTrainedModel) -> None:
        family = encoder_of(model).config.model_type
        if family not in PLACES:
            raise BermoError(
                f"The queries, keys and values of {family} cannot be read, so it cannot teach or learn"
                f" relations. Set distill-relations to 0, or use one of: {', '.join(sorted(PLACES))}."
            )
        self._places = PLACES[family]
        self._seen: dict[str, Tensor] = {}
        layer = layers_of(model)[-1]
        self._handles = [self._watch(layer.get_submodule(place), place) for place in self._places]

    def _watch(self, module: nn.Module, place: str) -> RemovableHandle:
        # A layer that stands in for all (ALBERT's) is called once for each; the last call stays.
        def keep(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
            self._seen[place] = output

        return module.register_forward_hook(keep)

    def take(self) -> list[Tensor]:
        """Return queries, keys and values (B, T, D) of the latest call, and let go of them."""
        found = [self._seen[place] for place in self._places if place in self._seen]
        self._seen.clear()
        return list(found[0].chunk(3, dim=-1)) if len(found) == 1 else found

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._seen.clear()
