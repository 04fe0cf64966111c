"""The mix of all layers by kernels, one forward and one backward (nn.fast.mixing), for a `Fusion`.

Where the head reads one token of each text, the kernel at the end of a layer gives that token by itself. Then
the mix and its gradients are made of these alone, and no layer gets a gradient of zeros for all other tokens.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from bermo.models.encoder import BermoModel
from bermo.nn.heads import take_rows
from bermo.nn.mix import LayerMix
from bermo.training.parts import Parts


class ReadRows:
    """The tokens that a head reads in this pass, and their rows of layers that gave them by themselves."""

    def __init__(self) -> None:
        self.tokens: Tensor | None = None
        # By the id of a layer: itself, so that the id stays its own, and the rows.
        self.rows: dict[int, tuple[Tensor, Tensor]] = {}

    def noting(self, core: BermoModel) -> Callable[..., Any]:
        """Return a model's own forward, which notes first which tokens are read."""

        def forward(*args: Any, **kwargs: Any) -> Any:
            self.clear()
            rows = kwargs.get("rows")
            is_one = rows is not None and rows.dim() == 2 and rows.shape[1] == 1 and rows.is_contiguous()
            self.tokens = rows if is_one else None
            return type(core).forward(core, *args, **kwargs)

        return forward

    def tokens_of(self, x: Tensor) -> Tensor | None:
        """Return the tokens that are read of the input of a layer's end (B, T, D), if they are known."""
        is_known = self.tokens is not None and x.dim() == 3 and len(x) == len(self.tokens)
        return self.tokens if is_known else None

    def keep(self, layer: Tensor, rows: Tensor | None) -> None:
        """Note the rows (B, 1, D) of a layer's output, if there are some."""
        if rows is not None:
            self.rows[id(layer)] = layer, rows

    def taken(self, layers: Sequence[Tensor], tokens: Tensor) -> list[Tensor] | None:
        """Return the rows of these layers, taken of those that did not give them; None if no layer did."""
        if self.tokens is not tokens or not any(id(layer) in self.rows for layer in layers):
            return None
        kept = self.rows
        return [kept[id(h)][1] if id(h) in kept else take_rows(h, tokens) for h in layers]

    def clear(self) -> None:
        """Forget a pass."""
        self.tokens = None
        self.rows.clear()


def mixed(core: BermoModel, parts: Parts, read: ReadRows) -> Callable[..., Tensor]:
    """Return what computes the mix of an encoder from the layers that lie in memory."""
    from bermo.nn.fast.mixing import can_mix, mixing
    from bermo.nn.layers import choose

    mix, number = cast(LayerMix, core.layer_mix), parts.next_seed()

    def mix_stacked(layers: tuple[Tensor, ...], attention_mask: Tensor | None, rows: Tensor | None) -> Tensor:
        chosen = choose(layers, mix.layers, mix.num_layers, "LayerMix")
        if not can_mix(chosen, mix.norm, rows):
            return BermoModel._mix_stacked(core, layers, attention_mask, rows)
        with torch.autocast(chosen[0].device.type, enabled=False):
            shares = mix._shares(drop=mix.training) * mix.scale
        p = mix.dropout if mix.training else 0.0
        taken = None if rows is None else read.taken(chosen, rows)
        given = (chosen, rows) if taken is None else (taken, None)
        return mixing(given[0], shares, parts.seed(number), given[1], mix.norm, p, mix.eps)

    return mix_stacked
