"""What each layer brings to a mix: the output that the mix would have if all of its share were one layer's.

    LayerMix   part_j = γ · norm(h_j)           mix(h) = Σ_j α_j · part_j
    GateMix    part_j = Σ_i s_i · h_j           mix(h) = Σ_j (s_j / Σ_i s_i) · part_j
    OneLayer   part_j = h_j

    projection   s_j = ⟨α_j part_j, m⟩ / ‖m‖²,  m = mix(h);   Σ_j s_j = 1 for each token

Layers outside the mix have a part too, with a share of 0. Axes: L + 1 layers, B texts, T tokens, D units.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from bermo.nn.mix import ConcatLayers, GateMix, LayerMix, Mix
from bermo.nn.stream import standardise, wide


def layer_parts(mix: Mix | None, hidden_states: Sequence[Tensor], mask: Tensor) -> list[Tensor] | None:
    """Return each layer as the mix would give it alone, (B, T, D); None where layers stand side by side."""
    match mix:
        case ConcatLayers():
            return None
        case LayerMix():
            return [part * mix.scale for part in _normalised(mix, hidden_states, mask)]
        case GateMix():
            total_B = mix.gates(hidden_states, mask).sum(1)
            return [hidden * total_B[:, None, None] for hidden in hidden_states]
        case _:
            return list(hidden_states)


def layer_shares(mix: Mix | None, hidden_states: Sequence[Tensor], mask: Tensor) -> Tensor | None:
    """Return the share of every layer in the mix, (L + 1, B); they sum to 1 for each text."""
    count, texts = len(hidden_states), len(hidden_states[0])
    shares = torch.zeros(count, texts, device=hidden_states[0].device)
    match mix:
        case ConcatLayers():
            return None
        case GateMix():
            gates_BJ = mix.gates(hidden_states, mask)
            return (gates_BJ / gates_BJ.sum(1, keepdim=True)).T
        case None:
            shares[-1] = 1.0
        case _:
            shares[list(mix.layers)] = mix.weights.to(shares)[:, None]
    return shares


def projections(mix: Mix | None, hidden_states: Sequence[Tensor], mask: Tensor) -> Tensor | None:
    """Return how much of each token's mixed vector is which layer's, (L + 1, B, T); the sum is 1."""
    parts = layer_parts(mix, hidden_states, mask)
    shares = layer_shares(mix, hidden_states, mask)
    if parts is None or shares is None:
        return None
    given = torch.stack(
        [wide(part) * share[:, None, None] for part, share in zip(parts, shares, strict=True)]
    )
    mixed = given.sum(0)
    return (given * mixed).sum(-1) / mixed.square().sum(-1).clamp(min=1e-30)


def _normalised(mix: LayerMix, hidden_states: Sequence[Tensor], mask: Tensor) -> list[Tensor]:
    layers = [wide(hidden) for hidden in hidden_states]
    if mix.norm != "across":
        return [standardise(hidden, mix.norm, mask, mix.eps) for hidden in layers]
    variance, mean = torch.var_mean(torch.stack([layers[j] for j in mix.layers]), dim=0, correction=0)
    return [(hidden - mean) * torch.rsqrt(variance + mix.eps) for hidden in layers]
