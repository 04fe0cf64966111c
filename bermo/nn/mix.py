"""Ways to make one sequence of vectors out of all layers h_0 … h_L of an encoder.

    LayerMix      γ · Σ_j softmax(α)_j · dropout(norm(h_j))     BERMo ("What can BERT learn from ELMo?")
    OneLayer      h_k                                           the plain encoder is k = L
    ConcatLayers  [h_a ; h_b ; …]                               BERT's feature-based setting
    GateMix       Σ_j s_j · h_j, s = σ(W₂ relu(W₁ z))           SesameBERT, after squeeze-and-excite

All are called the same way: `mix(hidden_states, attention_mask)`, with every layer from the embedding
output h_0 on. At inference `mix.stream(attention_mask)` takes the layers one by one, in place, so that
no stack of activations is kept. Axes: J mixed layers, B texts, T tokens, D hidden units.
"""

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from bermo.errors import BermoError, nearest
from bermo.nn.layers import check_choice, check_rate, choose, layer_numbers
from bermo.nn.stream import AcrossStream, KeepStream, Norm, Stream, SumStream, standardise, wide

Init: TypeAlias = Literal["xavier", "zeros", "last"]
LAST_SHARE = 0.9
"""What the last layer has at the start of a mix with init="last"."""
LAST_FOUR = (-4, -3, -2, -1)


class LayerMix(nn.Module):
    """γ · Σ_j softmax(α)_j · dropout(norm(h_j)): a learned share for each layer, and a learned scale.

    norm="across" standardises over the mixed layers, for each token and unit;
    norm="within" standardises over the hidden units, for each layer and token;
    norm="tensor" standardises each layer over all its unmasked elements, so a text's output depends on
    which other texts share its batch; norm=None takes the layers as they are.
    In training `layer_dropout` is the chance that a layer is left out; the other shares grow to sum to 1.

        >>> layers = list(torch.randn(7, 2, 5, 8))
        >>> mixes = bermo.LayerMix(7), bermo.OneLayer(7), bermo.ConcatLayers(7), bermo.GateMix(7)
        >>> [tuple(mix(layers).shape) for mix in mixes]
        [(2, 5, 8), (2, 5, 8), (2, 5, 32), (2, 5, 8)]
    """

    openness: Tensor | None

    def __init__(
        self,
        num_layers: int,
        norm: Norm = "across",
        dropout: float = 0.1,
        layer_dropout: float = 0.0,
        layers: Sequence[int] | None = None,
        init: Init = "xavier",
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        check_choice("norm", norm, ("across", "within", "tensor", None))
        check_choice("init", init, ("xavier", "zeros", "last"))
        check_rate("dropout", dropout)
        check_rate("layer_dropout", layer_dropout)
        self.num_layers, self.norm, self.init, self.eps = num_layers, norm, init, eps
        self.dropout, self.layer_dropout = dropout, layer_dropout
        self.layers = tuple(sorted(layer_numbers(layers, num_layers, "LayerMix")))
        self.is_per_token = norm != "tensor"
        if norm == "across" and len(self.layers) == 1:
            raise BermoError(
                'norm="across" standardises over the mixed layers, but only one was chosen, so the output'
                ' would always be 0. Choose two layers or more, or norm="within".'
            )
        if norm == "across" and init == "zeros":
            raise BermoError(
                'init="zeros" gives every layer the same share, and with norm="across" the output would'
                ' be exactly 0. Use init="xavier", or norm="within", "tensor" or None.'
            )
        # Two axes, because Xavier's bound needs a fan-in and a fan-out.
        self.logits = nn.Parameter(torch.empty(1, len(self.layers)))
        self.scale = nn.Parameter(torch.empty(()))
        # Factors of the shares, 0 to 1, while a training opens or closes layers (methods/mix_schedule.py).
        self.register_buffer("openness", None, persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start from Xavier-uniform logits, equal shares or mostly the last layer, and a scale of 1."""
        if self.init == "xavier":
            nn.init.xavier_uniform_(self.logits)
        else:
            nn.init.zeros_(self.logits)
        if self.init == "last" and len(self.layers) > 1:
            odds = LAST_SHARE / (1 - LAST_SHARE)
            nn.init.constant_(self.logits[:, -1], math.log(odds * (len(self.layers) - 1)))
        nn.init.ones_(self.scale)

    @property
    def weights(self) -> Tensor:
        """The learned share of each layer in `self.layers`; they sum to 1."""
        return self._shares().detach()

    def output_size(self, hidden_size: int) -> int:
        """Return the width of the output for layers of the given width."""
        return hidden_size

    def forward(self, hidden_states: Sequence[Tensor], attention_mask: Tensor | None = None) -> Tensor:
        """Mix the stacked layers h_0 … h_L into (B, T, D)."""
        chosen = choose(hidden_states, self.layers, self.num_layers, "LayerMix")
        # Half-precision matrix products would throw away what the wide statistics have kept.
        with torch.autocast(chosen[0].device.type, enabled=False):
            stack_JBTD = self._normalise([wide(hidden) for hidden in chosen], attention_mask)
            stack_JBTD = functional.dropout(stack_JBTD, self.dropout, self.training)
            shares_J = self._shares(drop=self.training).to(stack_JBTD.dtype)
            mixed_BTD = torch.tensordot(shares_J, stack_JBTD, dims=1) * self.scale
        return mixed_BTD.to(chosen[-1].dtype)

    def stream(self, attention_mask: Tensor | None = None) -> Stream:
        """Return running sums that mix layers one at a time; at inference only."""
        _check_inference(self, "LayerMix")
        if self.norm == "across":
            return AcrossStream(self.layers, self.weights, self.scale, self.eps)

        def normalise(hidden: Tensor) -> Tensor:
            return standardise(hidden, self.norm, attention_mask, self.eps)

        return SumStream(self.layers, self.weights * self.scale, normalise)

    def _shares(self, drop: bool = False) -> Tensor:
        logits_J = self.logits[0].to(torch.promote_types(self.logits.dtype, torch.float32))
        if self.openness is not None:
            logits_J = logits_J + self.openness.log()
        if drop and self.layer_dropout > 0:
            draw_J = torch.rand_like(logits_J)
            # The layer with the highest draw always stays, so that the shares are defined.
            dropped_J = (draw_J < self.layer_dropout) & (draw_J < draw_J.max())
            logits_J = logits_J.masked_fill(dropped_J, float("-inf"))
        return torch.softmax(logits_J, dim=0)

    def _normalise(self, chosen: list[Tensor], attention_mask: Tensor | None) -> Tensor:
        if self.norm == "across":
            stack_JBTD = torch.stack(chosen)
            variance, mean = torch.var_mean(stack_JBTD, dim=0, correction=0)
            return (stack_JBTD - mean) * torch.rsqrt(variance + self.eps)
        return torch.stack([standardise(h, self.norm, attention_mask, self.eps) for h in chosen])

    def extra_repr(self) -> str:
        return f"layers={self.layers}, norm={self.norm!r}, dropout={self.dropout}"


class OneLayer(nn.Module):
    """h_k: one layer, nothing learned. The last layer is the plain encoder."""

    is_per_token = True

    def __init__(self, num_layers: int, layer: int = -1) -> None:
        super().__init__()
        self.num_layers = num_layers
        self.layers = layer_numbers((layer,), num_layers, "OneLayer")

    def reset_parameters(self) -> None:
        """Do nothing: one layer has no parameters."""

    @property
    def weights(self) -> Tensor:
        """The whole share, for the one layer in `self.layers`."""
        return torch.ones(1)

    def output_size(self, hidden_size: int) -> int:
        """Return the width of the output for layers of the given width."""
        return hidden_size

    def forward(self, hidden_states: Sequence[Tensor], attention_mask: Tensor | None = None) -> Tensor:
        """Return the chosen layer."""
        return choose(hidden_states, self.layers, self.num_layers, "OneLayer")[0]

    def stream(self, attention_mask: Tensor | None = None) -> Stream:
        """Return a stream that keeps the chosen layer only."""
        return KeepStream(self.layers, lambda kept: kept[0])

    def extra_repr(self) -> str:
        return f"layer={self.layers[0]}"


class ConcatLayers(nn.Module):
    """[h_a ; h_b ; …]: the chosen layers side by side, in the given order; k times as wide."""

    is_per_token = True

    def __init__(self, num_layers: int, layers: Sequence[int] = LAST_FOUR) -> None:
        super().__init__()
        self.num_layers = num_layers
        self.layers = layer_numbers(layers, num_layers, "ConcatLayers")

    def reset_parameters(self) -> None:
        """Do nothing: a concatenation has no parameters."""

    @property
    def weights(self) -> Tensor:
        """Equal shares: each chosen layer is read whole."""
        return torch.full((len(self.layers),), 1 / len(self.layers))

    def output_size(self, hidden_size: int) -> int:
        """Return the width of the output for layers of the given width."""
        return hidden_size * len(self.layers)

    def forward(self, hidden_states: Sequence[Tensor], attention_mask: Tensor | None = None) -> Tensor:
        """Return the chosen layers as one (B, T, k·D) tensor."""
        return torch.cat(choose(hidden_states, self.layers, self.num_layers, "ConcatLayers"), dim=-1)

    def stream(self, attention_mask: Tensor | None = None) -> Stream:
        """Return a stream that keeps the chosen layers only."""
        return KeepStream(self.layers, lambda kept: torch.cat(kept, dim=-1))

    def extra_repr(self) -> str:
        return f"layers={self.layers}"


class GateMix(nn.Module):
    """Σ_j s_j · h_j with s = σ(W₂ relu(W₁ z)), z_j = mean of h_j over unmasked tokens and units.

    Each text has a gate of its own for each layer. The gates need all layers before the first product, so
    this mix cannot stream: its stream keeps every layer until the end.
    """

    is_per_token = False

    def __init__(self, num_layers: int, reduction: int = 4) -> None:
        super().__init__()
        if reduction < 1:
            raise BermoError(f"GateMix needs a reduction of 1 or more, but got {reduction}.")
        self.num_layers = num_layers
        self.layers = layer_numbers(None, num_layers, "GateMix")
        squeezed = max(1, num_layers // reduction)
        self.squeeze = nn.Linear(num_layers, squeezed)
        self.excite = nn.Linear(squeezed, num_layers)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start from Xavier-uniform matrices and zero biases: every gate near one half."""
        for linear in (self.squeeze, self.excite):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    @property
    def weights(self) -> Tensor:
        """Empty: no layer has one share, since each text sets its own gates; see `gates`."""
        return torch.empty(0)

    def output_size(self, hidden_size: int) -> int:
        """Return the width of the output for layers of the given width."""
        return hidden_size

    def gates(self, hidden_states: Sequence[Tensor], attention_mask: Tensor | None = None) -> Tensor:
        """Return the gate of each layer for each text, (B, J), each in 0 … 1."""
        chosen = choose(hidden_states, self.layers, self.num_layers, "GateMix")
        means_BJ = torch.stack([_text_mean(hidden, attention_mask) for hidden in chosen], dim=1)
        inner = functional.relu(self.squeeze(means_BJ.to(self.squeeze.weight.dtype)))
        return torch.sigmoid(self.excite(inner))

    def forward(self, hidden_states: Sequence[Tensor], attention_mask: Tensor | None = None) -> Tensor:
        """Return the gated sum of all layers, (B, T, D)."""
        gates_BJ = self.gates(hidden_states, attention_mask)
        total_BTD = wide(hidden_states[0]) * gates_BJ[:, 0, None, None]
        for j in range(1, self.num_layers):
            total_BTD = total_BTD + hidden_states[j] * gates_BJ[:, j, None, None]
        return total_BTD.to(hidden_states[-1].dtype)

    def stream(self, attention_mask: Tensor | None = None) -> Stream:
        """Return a stream that keeps every layer, because the gates need them all."""
        return KeepStream(self.layers, lambda kept: self(kept, attention_mask))


Mix: TypeAlias = LayerMix | OneLayer | ConcatLayers | GateMix
KINDS = (
    "across",
    "within",
    "tensor",
    "raw",
    "none",
    "second-to-last",
    "concat-last-four",
    "sum-last-four",
    "gate",
)


def build_mix(
    kind: str,
    num_layers: int,
    dropout: float = 0.1,
    layer_dropout: float = 0.0,
    layers: Sequence[int] | None = None,
    init: Init | None = None,
) -> Mix:
    """Build the mix that `kind` names; an option that it cannot use is an error."""
    is_init_given, init = init not in (None, "xavier"), init or "xavier"
    match kind:
        case "across" | "within" | "tensor":
            return LayerMix(num_layers, kind, dropout, layer_dropout, layers, init)
        case "raw":
            return LayerMix(num_layers, None, dropout, layer_dropout, layers, init)
        case "sum-last-four":
            if layers is not None:
                raise BermoError(f'"{kind}" chooses its own layers; use "raw" to choose {layers}.')
            return LayerMix(num_layers, None, dropout, layer_dropout, LAST_FOUR, init)
    if kind not in KINDS:
        raise BermoError(f'There is no mix "{kind}".{nearest(kind, KINDS)}')
    # The default dropout is let through, and so is none: neither says that the user wanted some.
    given = {
        "dropout": dropout not in (0.0, 0.1),
        "layer_dropout": layer_dropout != 0.0,
        "layers": layers is not None,
        "init": is_init_given,
    }
    unused = ", ".join(name for name, is_given in given.items() if is_given)
    if unused:
        raise BermoError(
            f'The mix "{kind}" has no {unused}. Leave it out, or choose across, within, tensor or raw.'
        )
    match kind:
        case "none":
            return OneLayer(num_layers, -1)
        case "second-to-last":
            return OneLayer(num_layers, -2)
        case "concat-last-four":
            return ConcatLayers(num_layers)
        case _:
            return GateMix(num_layers)


def _text_mean(hidden_BTD: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Return the mean over the unmasked tokens and all units of each text, (B,)."""
    wide_BTD = wide(hidden_BTD)
    if attention_mask is None:
        return wide_BTD.mean(dim=(1, 2))
    real_BT = attention_mask.bool()
    totals_B = torch.where(real_BT, wide_BTD.mean(dim=-1), 0).sum(dim=1)
    return totals_B / real_BT.sum(dim=1).clamp(min=1)


def _check_inference(mix: nn.Module, name: str) -> None:
    if mix.training or torch.is_grad_enabled():
        raise BermoError(
            f"{name} streams at inference only, because running sums in place leave nothing to"
            " differentiate. Call eval() and use torch.no_grad(), or pass all layers at once."
        )
