"""Layers of N models of one shape as one layer: batch products in place of N small ones.

    input (N·B, …, D): the rows of model 0, then those of model 1, …        y_n = x_n W_nᵀ + b_n

Each takes over the parameters of its N members, which become views of the joint tensor. So whatever trains
the joint one trains the members, and each member stays a whole model that can predict, be folded and be
saved. Axes: N models, J mixed layers, D units.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from bermo.errors import BermoError
from bermo.nn.heads import Scale
from bermo.nn.layers import choose
from bermo.nn.masked import original_of
from bermo.nn.mix import LayerMix
from bermo.nn.stream import wide


def join(parameters: Sequence[Tensor]) -> nn.Parameter:
    """Stack tensors into one parameter, and make each of them a view of it."""
    joint = torch.stack([parameter.detach() for parameter in parameters])
    for index, parameter in enumerate(parameters):
        parameter.data = joint[index]
    return nn.Parameter(joint, requires_grad=parameters[0].requires_grad)


class StackedLinear(nn.Linear):
    """y_n = x_n W_nᵀ + b_n, one batch product for all models."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter | None) -> None:
        nn.Module.__init__(self)
        self.num_models, self.out_features, self.in_features = weight.shape
        self.weight, self.bias = weight, bias  # type: ignore[assignment]

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(self.num_models, -1, x.shape[-1])
        turned = self.weight.transpose(1, 2)
        if self.bias is None:
            product = torch.bmm(rows, turned)
        else:
            product = torch.baddbmm(self.bias[:, None], rows, turned)
        return product.view(*x.shape[:-1], self.out_features)


class StackedConv1D(nn.Module):
    """y_n = x_n W_n + b_n: GPT-2's linear layers, whose matrices are transposed."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias
        self.nx, self.nf = weight.shape[1:]

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(len(self.weight), -1, x.shape[-1])
        return torch.baddbmm(self.bias[:, None], rows, self.weight).view(*x.shape[:-1], self.nf)


class StackedScale(nn.Module):
    """y_n = x_n ⊙ g_n + b_n: the scale of a pair's features, and what MobileBERT has in place of a norm."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(len(self.weight), -1, x.shape[-1])
        return torch.addcmul(self.bias[:, None], rows, self.weight[:, None]).view_as(x)


class StackedNorm(nn.Module):
    """Layer norm whose gain and shift are each model's own."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter | None, eps: float) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = weight, bias, eps

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(len(self.weight), -1, x.shape[-1])
        normal = functional.layer_norm(rows, rows.shape[-1:], eps=self.eps)
        if self.bias is None:
            return (normal * self.weight[:, None]).view_as(x)
        return torch.addcmul(self.bias[:, None], normal, self.weight[:, None]).view_as(x)


class StackedEmbedding(nn.Module):
    """One table for each model, read as one long table: ids are shifted to the table of their row's model.

    Encoders look up the words first, with a row for each text, and may look up the positions with one row for
    all texts: `rows`, shared by the tables of a model, remembers how many texts there are.
    """

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight
        self.rows = [0]

    def forward(self, ids: Tensor) -> Tensor:
        return functional.embedding(self.in_whole(ids), self.weight.view(-1, self.weight.shape[-1]))

    def in_whole(self, ids: Tensor) -> Tensor:
        """Return the ids of the long table, a row of them for each text."""
        count, size, _ = self.weight.shape
        if len(ids) == 1:
            ids = ids.expand(self.rows[0], *ids.shape[1:])
        self.rows[0] = len(ids)
        first = torch.arange(count, device=ids.device).repeat_interleave(len(ids) // count) * size
        return ids + first.view(-1, *[1] * (ids.ndim - 1))


class StackedMix(LayerMix):
    """γ_n · Σ_j softmax(α_n)_j · dropout(norm(h_j)): every model has its own shares and scale."""

    def __init__(self, members: Sequence[LayerMix]) -> None:
        nn.Module.__init__(self)
        first = members[0]
        if first.norm == "tensor":
            raise BermoError(
                'The mix "tensor" standardises over all texts of a batch, so seeds cannot be trained'
                " together. Choose another mix, or leave --together out."
            )
        self.num_layers, self.norm, self.init, self.eps = (
            first.num_layers,
            first.norm,
            first.init,
            first.eps,
        )
        self.dropout, self.layer_dropout = first.dropout, first.layer_dropout
        self.layers, self.is_per_token = first.layers, first.is_per_token
        self.logits = join([member.logits for member in members])
        self.scale = join([member.scale for member in members])

    def forward(self, hidden_states: Sequence[Tensor], attention_mask: Tensor | None = None) -> Tensor:
        """Mix the stacked layers h_0 … h_L of all models, (N·B, T, D)."""
        chosen = choose(hidden_states, self.layers, self.num_layers, "StackedMix")
        count = len(self.scale)
        with torch.autocast(chosen[0].device.type, enabled=False):
            stack = self._normalise([wide(hidden) for hidden in chosen], attention_mask)
            stack = functional.dropout(stack, self.dropout, self.training)
            shares_NJ = self._shares(drop=self.training).to(stack.dtype)
            rows_JNX = stack.view(len(self.layers), count, -1)
            mixed_NX = (rows_JNX * shares_NJ.T[..., None]).sum(0) * self.scale[:, None]
        return mixed_NX.view(chosen[-1].shape).to(chosen[-1].dtype)

    def stream(self, attention_mask: Tensor | None = None) -> "KeptLayers":
        """Keep the layers and mix them at the end: running sums have no shares for each model."""
        return KeptLayers(self, attention_mask)

    def _shares(self, drop: bool = False) -> Tensor:
        logits_NJ = self.logits[:, 0].float()
        if drop and self.layer_dropout > 0:
            draw_NJ = torch.rand_like(logits_NJ)
            dropped_NJ = (draw_NJ < self.layer_dropout) & (draw_NJ < draw_NJ.amax(1, keepdim=True))
            logits_NJ = logits_NJ.masked_fill(dropped_NJ, float("-inf"))
        return torch.softmax(logits_NJ, dim=1)


class KeptLayers:
    """The layers that a mix reads, kept while the encoder runs."""

    def __init__(self, mix: StackedMix, attention_mask: Tensor | None) -> None:
        self.mix, self.attention_mask = mix, attention_mask
        self.kept: dict[int, Tensor] = {}

    def add(self, index: int, hidden_BTD: Tensor) -> None:
        self.kept[index] = hidden_BTD

    def result(self) -> Tensor:
        # Layers that the mix does not read are not kept, and any of the kept ones may stand for them.
        some = next(iter(self.kept.values()))
        layers = [self.kept.get(index, some) for index in range(self.mix.num_layers)]
        return cast(Tensor, self.mix(layers, self.attention_mask))


OTHERS: dict[str, type[StackedConv1D | StackedScale]] = {"Conv1D": StackedConv1D, "NoNorm": StackedScale}
"""The joint forms of transformers' own layers, by the names of their classes."""


def stacked_layer(members: Sequence[nn.Module]) -> nn.Module | None:
    """Return the members' layers as one; None for a kind of layer without a joint form."""
    first = members[0]
    if isinstance(first, LayerMix):
        return StackedMix([cast(LayerMix, member) for member in members])
    if isinstance(first, nn.Linear):
        return StackedLinear(*_pair(members))
    if isinstance(first, nn.LayerNorm):
        return StackedNorm(*_pair(members), eps=first.eps)
    if isinstance(first, nn.Embedding):
        return StackedEmbedding(_pair(members)[0])
    if isinstance(first, Scale):
        return StackedScale(*cast(Any, _pair(members)))
    # A masked layer has a class of its own, which inherits from the layer's.
    kinds = [OTHERS[base.__name__] for base in type(first).__mro__ if base.__name__ in OTHERS]
    return kinds[0](*cast(Any, _pair(members))) if kinds else None


def _pair(members: Sequence[nn.Module]) -> tuple[nn.Parameter, nn.Parameter | None]:
    """The joint weight and bias; of a masked weight the one under the mask."""
    weights = [original_of(member) for member in members]
    biases = [getattr(member, "bias", None) for member in members]
    return join(weights), None if biases[0] is None else join(cast(list[Tensor], biases))
