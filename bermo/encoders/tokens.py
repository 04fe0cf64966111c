"""An encoder whose layers hand on only some of the tokens (nn/tokens.py), by hooks; no model code is copied.

After the attention of a layer, as in PoWER-BERT, the tokens that receive most attention go on to the
feed-forward part and the layers above. The queries and keys that the layer computed are used again.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from bermo.encoders.families import family_of, num_layers
from bermo.encoders.layers import layer_modules
from bermo.errors import BermoError
from bermo.nn.tokens import WHOLE, select, significance, soften

NAME = "token_filter"


@dataclass(eq=False)
class TokenFilter:
    """What the hooks of an encoder share: how much each layer keeps, and what the running call has seen."""

    parts: list[int]
    """The tokens that each layer keeps, in 256ths of the text's; never more than the layer before it."""
    soft: Tensor | None = None
    """Factors of ranks, (layers, R), where these are learned; then every token stays."""
    seen: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    """The mask, queries and keys of the call that a thread makes."""

    @property
    def now(self) -> dict[str, Tensor]:
        return self.seen.setdefault(threading.get_ident(), {})

    def before(self, index: int) -> int:
        """Return what a layer is given."""
        return self.parts[index - 1] if index else WHOLE

    def __deepcopy__(self, memo: dict[int, Any]) -> "TokenFilter":
        other = TokenFilter(list(self.parts))
        memo[id(self)] = other
        return other


def filter_of(encoder: nn.Module) -> TokenFilter | None:
    """Return what decides which tokens an encoder's layers keep; None where they keep all."""
    return getattr(encoder, NAME, None)


def check_filter(encoder: PreTrainedModel) -> None:
    """Refuse a family whose layers are not BERT's."""
    family, config = family_of(encoder.config), encoder.config
    layers = layer_modules(encoder, family)
    if not family.export.can_cut_top or len(layers) != num_layers(config) - 1:
        raise BermoError(
            f"Tokens can be left out in layers like BERT's (bert, roberta, electra), but got"
            f" {config.model_type}. Leave --keep-tokens out."
        )


def filter_tokens_(encoder: PreTrainedModel, parts: Sequence[int]) -> TokenFilter:
    """Let each layer hand on a part of the tokens, in 256ths, in place."""
    check_filter(encoder)
    known, family = TokenFilter(list(parts)), family_of(encoder.config)
    setattr(encoder, NAME, known)
    encoder.register_forward_pre_hook(partial(_begin, known), with_kwargs=True)
    assert family.projections is not None, "families with BERT's layers have them"
    for index, layer in enumerate(layer_modules(encoder, family)):
        layer.register_forward_pre_hook(partial(_read_mask, known, index), with_kwargs=True)
        for name, path in zip(("query", "key"), family.projections.paths, strict=False):
            layer.get_submodule(path).register_forward_hook(partial(_keep, known, name))
        layer.get_submodule("attention").register_forward_hook(partial(_drop, known, index))
    return known


def _begin(known: TokenFilter, encoder: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
    mask = kwargs.get("attention_mask")
    if mask is None:
        given = kwargs.get("input_ids")
        given = kwargs["inputs_embeds"] if given is None else given
        mask = torch.ones(given.shape[:2], dtype=torch.long, device=given.device)
    known.now.clear()
    known.now["mask"] = known.now["whole"] = mask


def _read_mask(known: TokenFilter, index: int, layer: nn.Module, args: Any, kwargs: Any) -> Any:
    """Give a layer the mask of the tokens that are left."""
    if known.soft is not None or known.before(index) == WHOLE:
        return None
    hidden = args[0] if args else kwargs["hidden_states"]
    mask_BT = known.now["mask"]
    lowest = torch.finfo(hidden.dtype).min
    # A row for every query: onnxruntime does not broadcast masks.
    added = (1 - mask_BT[:, None, None].to(hidden.dtype)).expand(-1, -1, hidden.shape[1], -1) * lowest
    if len(args) > 1:
        return (args[0], added, *args[2:]), kwargs
    return args, {**kwargs, "attention_mask": added}


def _keeps_all(known: TokenFilter, index: int) -> bool:
    """Tell whether a layer hands on all that it was given."""
    return known.parts[index] == known.before(index)


def _keep(known: TokenFilter, name: str, module: nn.Module, args: Any, output: Tensor) -> None:
    known.now[name] = output


def _drop(known: TokenFilter, index: int, attention: nn.Module, args: Any, output: Any) -> Any:
    """Leave tokens out of what attention gives, or weigh them while that is learned."""
    if known.soft is None and _keeps_all(known, index):
        return None
    first = output[0] if isinstance(output, tuple) else output
    size = attention.get_submodule("self").attention_head_size
    query, key = (known.now[name].unflatten(-1, (-1, size)).transpose(1, 2) for name in ("query", "key"))
    mask = known.now["mask"]
    with torch.no_grad():
        received = significance(query, key, mask)
    if known.soft is not None:
        first = soften(first, received, mask, known.soft[index])
    else:
        first, known.now["mask"] = select(first, received, known.now["whole"], known.parts[index])
    return (first, *output[1:]) if isinstance(output, tuple) else first
