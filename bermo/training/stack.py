"""N models of one shape as one: the same modules, with every trained layer and pruning mask stacked.

joint = stack(models)      joint(**batch) reads rows of model 0, then of model 1, …
The weights of the models become views of the joint ones.
"""

import copy
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from bermo.encoders.families import family_of
from bermo.encoders.position_bias import set_position_bias_
from bermo.encoders.sites import encoder_of
from bermo.errors import BermoError
from bermo.nn.masked import attach_mask_, is_masked, mask_on, original_of
from bermo.nn.masks import HardConcrete, Mask, ScoreMask, TopMask
from bermo.nn.stacked import StackedEmbedding, stacked_layer

WHY = "so the seeds cannot be trained together. Leave --together out."


def stack(models: Sequence[PreTrainedModel]) -> PreTrainedModel:
    """Return one model that computes what all of them do; they must already be on its device."""
    _check_family(models[0])
    joint = copy.deepcopy(models[0])
    done: list[str] = []
    rows = [0]
    for name, module in list(joint.named_modules()):
        is_inside = any(name.startswith(f"{prefix}.") for prefix in done)
        if is_inside or not any(p.requires_grad for p in module.parameters()):
            continue
        members = [model.get_submodule(name) for model in models]
        made = stacked_layer(members)
        if made is None:
            _check_bare(name, module)
            continue
        _stack_mask_(made, members)
        if isinstance(made, StackedEmbedding):
            made.rows = rows
        joint.set_submodule(name, made)
        done.append(name)
    _check_shared(models, done)
    set_position_bias_(joint)
    return joint


def stacked_masks(joint: nn.Module) -> list[tuple[Mask, nn.Parameter]]:
    """Return the stacked masks and the weights under them."""
    pairs = []
    for module in joint.modules():
        if is_masked(module):
            pairs.append((cast(Mask, mask_on(module)), cast(nn.Parameter, original_of(module))))
    return pairs


def _stack_mask_(made: nn.Module, members: Sequence[nn.Module]) -> None:
    """Put a mask on the stacked weight; the scores and masks of the members become views of it."""
    if not is_masked(members[0]):
        return
    own = [cast(Mask, mask_on(member)) for member in members]
    if own[0].blocks.size != (1, 1):
        raise BermoError(f"Weights are pruned in blocks, {WHY}")
    mask = type(own[0])(cast(Tensor, made.weight))
    if not isinstance(mask, TopMask):
        own_scores = [cast(ScoreMask | HardConcrete, one).scores for one in own]
        mask.scores.data = torch.stack([scores.data.flatten() for scores in own_scores])
        for scores, joint in zip(own_scores, mask.scores.data, strict=True):
            scores.data = joint.view_as(scores)
    for name in dict(own[0].named_buffers()):
        joined = torch.stack([getattr(one, name).flatten() for one in own])
        mask.register_buffer(name, joined)
        for index, one in enumerate(own):
            setattr(one, name, joined[index].view_as(getattr(one, name)))
    attach_mask_(made, mask)


def _check_family(model: PreTrainedModel) -> None:
    config = encoder_of(model).config
    if family_of(config).attention.reads_whole_table:
        raise BermoError(
            f"{config.model_type} reads its table of position vectors whole in each layer, {WHY}"
        )


def _check_bare(name: str, module: nn.Module) -> None:
    bare = [key for key, p in module.named_parameters(recurse=False) if p.requires_grad]
    if bare:
        raise BermoError(f"{name} ({type(module).__name__}) has weights of its own, {WHY}")


def _check_shared(models: Sequence[nn.Module], done: Sequence[str]) -> None:
    """Refuse models that differ in what is not stacked, since all of them read it."""
    prefixes = tuple(f"{name}." for name in done)
    first = models[0].state_dict()
    for model in models[1:]:
        for name, tensor in model.state_dict().items():
            if not name.startswith(prefixes) and not torch.equal(tensor, first[name]):
                raise BermoError(f"{name} is not trained and differs between seeds, {WHY}")
