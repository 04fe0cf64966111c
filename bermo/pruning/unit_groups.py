"""Masks on the groups of units of an encoder: all heads or all neurons of a layer, or the layer itself."""

from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from bermo.encoders.sites import Site
from bermo.encoders.structure import Group, Kind, groups_of
from bermo.errors import BermoError
from bermo.nn.masked import attach_mask_, is_masked
from bermo.nn.masks import HardConcrete, Rank, ScoreMask, importance
from bermo.nn.unit_masks import Follower, UnitMask, share_scores_
from bermo.pruning.criteria import L0, Method, Movement, UnitKind


@dataclass(frozen=True, kw_only=True)
class MaskedGroup:
    """A group of units and its masks, which are on the matrices that read the units, and share scores."""

    name: str
    layer: int
    kind: Kind | Literal["layers"]
    masks: tuple[UnitMask, ...]
    cost: int
    """Weights of one unit, in all its matrices."""
    output: Site
    """The matrix that reads the units; of a whole layer, the first."""

    @property
    def scores(self) -> nn.Parameter:
        return self.masks[0].scores

    @property
    def count(self) -> int:
        return self.scores.numel()

    def num_open(self) -> Tensor:
        """Return how many units are open, as a tensor."""
        return self.masks[0].mask.sum()

    def set_(self, mask: Tensor) -> None:
        """Open and close the units."""
        for own in self.masks:
            own.mask.copy_(mask.view_as(own.mask))


def mask_groups_(model: PreTrainedModel, method: Method, unit: UnitKind) -> list[MaskedGroup]:
    """Put masks on all units of a model, in place."""
    groups = groups_of(model)
    if not groups:
        raise BermoError("This model has no head and no neuron left that could be pruned.")
    if unit == "heads-and-neurons":
        return [_mask_units_(group, method) for group in groups]
    layers = [list(members) for _, members in groupby(groups, key=lambda group: group.layer)]
    if len(layers) == 1:
        raise BermoError("This encoder has one layer of weights, which cannot be pruned whole.")
    return [_mask_layer_(members, method) for members in layers]


def importance_of(groups: list[MaskedGroup], rank: Rank = "score") -> Tensor:
    """What the units of several groups are ranked by: scores, or mean |W₂| of what reads them · σ(score)."""
    values = [importance(group.masks[0], group.output.original, rank) for group in groups]
    return torch.cat([value.detach().flatten() for value in values])


def set_groups_(groups: list[MaskedGroup], mask: Tensor) -> None:
    """Set the masks of several groups from one mask over all their units."""
    for group, part in zip(groups, mask.split([group.count for group in groups]), strict=True):
        group.set_(part)


def _mask_units_(group: Group, method: Method) -> MaskedGroup:
    mask = _make_mask(group, method, group.size)
    _attach_(group, mask, is_whole=False)
    return MaskedGroup(
        name=group.name,
        layer=group.layer,
        kind=group.kind,
        masks=(mask,),
        cost=group.cost,
        output=group.output,
    )


def _mask_layer_(groups: list[Group], method: Method) -> MaskedGroup:
    """One score for all units of a layer; its norms, its biases and its residual connection stay."""
    masks = [_make_mask(group, method, group.size * group.count) for group in groups]
    share_scores_(masks)
    for group, mask in zip(groups, masks, strict=True):
        _attach_(group, mask, is_whole=True)
    cost = sum(group.cost * group.count for group in groups)
    layer = groups[0].layer
    return MaskedGroup(
        name=f"layer.{layer}",
        layer=layer,
        kind="layers",
        masks=tuple(masks),
        cost=cost,
        output=groups[0].output,
    )


def _make_mask(group: Group, method: Method, columns: int) -> UnitMask:
    weight = group.output.original
    block = (columns, 0) if group.output.is_transposed else (0, columns)
    if isinstance(method, L0):
        return HardConcrete(weight, block)
    is_sized = isinstance(method, Movement) and method.start == "magnitude"
    return ScoreMask(weight, block, from_magnitude=is_sized)


def _attach_(group: Group, mask: UnitMask, is_whole: bool) -> None:
    """Put a mask on the reading matrix of a group, and followers on the matrices that feed it."""
    if any(is_masked(site.module, site.parameter) for site in (group.output, *group.inputs)):
        raise BermoError("This model has masks already. Call bermo.fold_(model) first.")
    attach_mask_(group.output.module, mask, group.output.parameter)
    for site in group.inputs:
        weight = site.original
        if is_whole:
            follower = Follower(weight, (0, 0), mask, _same)
        else:
            pieces = group.input_units()
            is_last_axis = site.is_transposed or weight.ndim == 3
            size = (weight[0].numel() if is_last_axis else weight.shape[0]) // pieces
            block = (0, size) if is_last_axis else (size, 0)
            times = 1 if group.is_interleaved else group.parts
            follower = Follower(weight, block, mask, partial(_repeat, times=times))
        attach_mask_(site.module, follower, site.parameter)


def _same(mask: Tensor) -> Tensor:
    return mask


def _repeat(mask: Tensor, times: int) -> Tensor:
    return mask.repeat(times)
