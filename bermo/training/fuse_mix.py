"""The mix of all layers by kernels, one forward and one backward (nn.fast.mixing), for a `Fusion`."""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from bermo.models.encoder import BermoModel
from bermo.nn.mix import LayerMix
from bermo.training.parts import Parts


def mixed(core: BermoModel, parts: Parts) -> Callable[..., Tensor]:
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
        return mixing(chosen, shares, parts.seed(number), rows, mix.norm, p, mix.eps)

    return mix_stacked
