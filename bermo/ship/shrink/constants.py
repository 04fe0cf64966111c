"""Units that say the same whatever they read: their rows are all zero, as pruning by rows leaves them.

    a neuron without input      act(b)                    is a number, for every token
    a head whose values are 0   Σ_t attention_t · b = b   is the bias of its values, for every token

What they add is then a constant: it goes into the bias of the matrix that reads them, and they are dead.
Where that matrix has no bias (ModernBERT, XLNet), such a unit gives 0 if it has no bias of its own either.
"""

from typing import cast

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN

from bermo.encoders.sites import encoder_of
from bermo.encoders.structure import Group, groups_of
from bermo.models.encoder import BermoPreTrainedModel

NAMES_OF_ACTIVATION = (
    "hidden_act",
    "hidden_activation",
    "activation",
    "activation_function",
    "ff_activation",
)


@torch.no_grad()
def fold_constants_(model: BermoPreTrainedModel) -> None:
    """Move the output of constant units into the bias of their reading matrices, and zero their columns."""
    for group in groups_of(model):
        constant = constant_units(model, group)
        if not constant.any():
            continue
        bias = cast(Tensor | None, getattr(group.output.module, "bias", None))
        if bias is not None:
            weight = group.output.original
            values = _outputs(model, group) * constant.repeat_interleave(group.size)
            bias.add_((weight.T if group.output.is_transposed else weight) @ values)
        group.zero_units_(constant)


@torch.no_grad()
def constant_units(model: BermoPreTrainedModel, group: Group) -> Tensor:
    """Tell which living units of a group are constants that can be folded, (units,)."""
    none = torch.zeros(group.count, dtype=torch.bool, device=group.output.original.device)
    if group.output.parameter != "weight" or group.is_interleaved:
        # XLNet and DeBERTa keep their heads in another way.
        return none
    living = group.units_of_output(group.output.original).any(dim=1)
    rows = _rows(group)
    silent = ~rows.reshape(group.count, -1).any(dim=1)
    if group.kind == "neurons" and group.parts == 2:
        # A gated unit: neither part alone decides.
        return none
    has_bias = getattr(group.output.module, "bias", None) is not None
    return silent & living & (has_bias | ~_outputs(model, group).view(group.count, -1).any(dim=1))


def _rows(group: Group) -> Tensor:
    """Return the rows that decide what the units say: the first matrix, or the values of heads."""
    site = group.inputs[2] if group.kind == "heads" and group.parts == 1 else group.inputs[0]
    matrix = site.original.T if site.is_transposed else site.original
    return matrix.chunk(group.parts)[-1]


def _outputs(model: BermoPreTrainedModel, group: Group) -> Tensor:
    """Return what units without input give, (units × size)."""
    site = group.inputs[2] if group.kind == "heads" and group.parts == 1 else group.inputs[0]
    bias = cast(Tensor | None, getattr(site.module, "bias", None))
    if bias is None:
        bias = site.original.new_zeros(group.parts * group.count * group.size)
    own = bias.chunk(group.parts)[-1]
    return own if group.kind == "heads" else cast(Tensor, _activation(model)(own))


def _activation(model: BermoPreTrainedModel) -> nn.Module:
    config = encoder_of(model).config
    activation = next(getattr(config, name) for name in NAMES_OF_ACTIVATION if hasattr(config, name))
    return cast(nn.Module, ACT2FN[activation]) if isinstance(activation, str) else activation
