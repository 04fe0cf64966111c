"""A student made of some of its teacher's layers, with the teacher's embeddings and head (DistilBERT).

student layer i = teacher layer layers[i − 1];  embeddings, final norm, head: the teacher's own
mix: the teacher's logits of the layers that stay, and its scale
"""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from bermo.encoders.families import num_layers
from bermo.encoders.shape import WIDTHS
from bermo.encoders.sites import layers_of
from bermo.encoders.structure import Group, anatomy_of, groups_of, keep_units_, structure_of
from bermo.encoders.tied import FIELD
from bermo.errors import BermoError
from bermo.models.config import BermoConfig, MixChoice, mix_options
from bermo.models.tasks import BermoPreTrainedModel
from bermo.nn.mix import LayerMix


def student_from_teacher(
    teacher: BermoPreTrainedModel,
    layers: Sequence[int],
    mix: MixChoice = None,
    neurons: float = 1.0,
    heads: float = 1.0,
) -> BermoPreTrainedModel:
    """Build a smaller model of the teacher's class from its layers (1 = the first), in eval mode.

    `mix` is another mix for the student; without it, the teacher's. `neurons` and `heads` are the shares of
    each layer's that stay, those with the largest weights. What does not fit starts at random, drawn from
    torch's generator: call torch.manual_seed first.
    """
    old = cast(BermoConfig, teacher.config)
    chosen = check_layers(layers, old.backbone)
    options = _mix_of_student(old, chosen) if mix is None else mix_options(mix)
    config = copy.deepcopy(old)
    config.mix = options
    shorten_(config.backbone, chosen)
    if config.structure is not None and len(layers_of(teacher)) > 1:
        shapes = config.structure["layers"]
        config.structure["layers"] = [shapes[layer - 1] for layer in chosen]
    parts = old.kept_tokens
    config.kept_tokens = None if parts is None else [parts[layer - 1] for layer in chosen]
    student = type(teacher)(config)
    with torch.no_grad():
        copy_layers_(student, teacher, chosen)
        _copy_rest_(student, teacher)
        copy_mix_(student.mix, teacher.mix, (0, *chosen))
    if neurons < 1:
        keep_neurons_(student, neurons)
    if heads < 1:
        keep_heads_(student, heads)
    return student.eval()


@torch.no_grad()
def keep_neurons_(model: BermoPreTrainedModel, share: float) -> None:
    """Keep a share of the neurons of every layer, in place (`keep_count_`)."""
    count = next(group.count for group in groups_of(model) if group.kind == "neurons")
    keep_count_(model, max(1, round(share * count)))


@torch.no_grad()
def keep_count_(model: BermoPreTrainedModel, kept: int) -> None:
    """Keep as many neurons in every layer, in place, and say so in the encoder's own config, so that stock
    code can build it. A neuron's weight is ‖what feeds it‖ · ‖what reads it‖.
    """
    config, anatomy = cast(BermoConfig, model.config), anatomy_of(model)
    if config.structure is not None:
        raise BermoError("This model was shrunk, so its layers differ. Keep the neurons that it has.")
    groups = [group for group in groups_of(model) if group.kind == "neurons"]
    name = next((n for n in WIDTHS if getattr(config.backbone, n, None) == groups[0].count), None)
    if name is None or len({group.count for group in groups}) != 1:
        raise BermoError(f"The config of {config.backbone.model_type} cannot say that it has fewer neurons.")
    layers = layers_of(model)
    for group in groups:
        heads = range(next(g.count for g in groups_of(model) if g.layer == group.layer and g.kind == "heads"))
        best = importance(group).topk(kept).indices.sort().values
        keep_units_(layers[group.layer - 1], anatomy, group, best.tolist(), heads)
    setattr(config.backbone, name, kept)


@torch.no_grad()
def keep_heads_(model: BermoPreTrainedModel, share: float) -> None:
    """Keep a share of the heads of every layer, in place; the model's config records which ones. A head's
    weight is ‖what feeds it‖ · ‖what reads it‖.
    """
    config, anatomy, known = cast(BermoConfig, model.config), anatomy_of(model), structure_of(model)
    layers, shapes = layers_of(model), list(known.layers)
    for group in groups_of(model):
        if group.kind == "heads":
            shape = shapes[group.layer - 1]
            best = best_units(group, share)
            heads = tuple(shape.heads[unit] for unit in best)
            keep_units_(layers[group.layer - 1], anatomy, group, best, heads)
            shapes[group.layer - 1] = replace(shape, heads=heads)
    config.structure = replace(known, layers=tuple(shapes)).to_dict()


def importance(group: Group) -> torch.Tensor:
    """Return the weight of each unit: ‖what feeds it‖ · ‖what reads it‖."""
    read = group.units_of_output(group.output.original).norm(dim=1)
    feeds = [
        (site.original if not site.is_transposed else site.original.T).reshape(group.parts, group.count, -1)
        for site in group.inputs
    ]
    return read * sum(part.norm(dim=2).sum(0) for part in feeds)


def best_units(group: Group, share: float) -> list[int]:
    """Return the share of the units with the largest weights, in their order; one at least."""
    kept = max(1, round(share * group.count))
    return [int(unit) for unit in importance(group).topk(kept).indices.sort().values]


def check_layers(layers: Sequence[int], config: PretrainedConfig) -> tuple[int, ...]:
    """Return the layers to keep, or refuse what cannot be chosen from an encoder of this config."""
    last = num_layers(config) - 1
    chosen = tuple(layers)
    if not chosen or list(chosen) != sorted(set(chosen)) or chosen[0] < 1 or chosen[-1] > last:
        given, example = (",".join(map(str, numbers)) for numbers in (chosen, range(1, last + 1, 2)))
        raise BermoError(
            f"Layers to keep must be rising numbers from 1 to {last}, but got {given or 'none'}."
            f" For example: {example}."
        )
    groups = getattr(config, "num_hidden_groups", 1) * getattr(config, "inner_group_num", 1)
    if groups > 1:
        raise BermoError(
            f"This {config.model_type} repeats {groups} different layers in turn, and a choice among them"
            " would change which comes when. Only one that repeats a single layer can be shortened."
        )
    if getattr(config, "scale_attn_by_inverse_layer_idx", False):
        raise BermoError(
            "This teacher scales each layer's attention by the layer's number, so its layers cannot move."
            " Train a student from its own config instead."
        )
    return chosen


def shorten_(config: PretrainedConfig, chosen: tuple[int, ...]) -> None:
    """Say in a config, in place, that only some layers are left."""
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        config.layer_types = [kinds[layer - 1] for layer in chosen]
    config.num_hidden_layers = len(chosen)
    # The layers of a student are its own.
    vars(config).pop(FIELD, None)


def _mix_of_student(config: BermoConfig, chosen: tuple[int, ...]) -> dict[str, Any]:
    """Return the teacher's mix; layers that it names are renumbered, and those left out are dropped."""
    options = dict(config.mix)
    if options["layers"] is not None:
        named = {layer % num_layers(config.backbone) for layer in options["layers"]}
        kept = [index for index, layer in enumerate((0, *chosen)) if layer in named]
        if not kept:
            raise BermoError(
                f"The teacher mixes layers {options['layers']}, and student-layers leaves all of them out."
                " Keep at least one of them."
            )
        options["layers"] = kept
    return options


def copy_layers_(student: PreTrainedModel, teacher: PreTrainedModel, chosen: tuple[int, ...]) -> None:
    """Write the weights of a teacher's chosen layers into the layers of a student."""
    sources, targets = layers_of(teacher), layers_of(student)
    if len(sources) == 1 < len(chosen):
        # One layer that is used for all (ALBERT).
        chosen = (1,)
    for index, (target, number) in enumerate(zip(targets, chosen, strict=True), start=1):
        source = sources[min(number, len(sources)) - 1]
        odd = set(source.state_dict()) ^ set(target.state_dict())
        if odd:
            raise BermoError(
                f"Layer {number} of the teacher cannot become layer {index} of a student: they differ in"
                f" {', '.join(sorted(odd)[:3])}. Take layer 1 as the first of student-layers."
            )
        target.load_state_dict(source.state_dict())


def _copy_rest_(student: BermoPreTrainedModel, teacher: BermoPreTrainedModel) -> None:
    """Copy what lies outside layers and mix, where the shapes fit (a head on another mix may not)."""
    inside = {id(p) for part in (*layers_of(student), student.mix) for p in _tensors(part)}
    known = dict(teacher.named_parameters()) | dict(teacher.named_buffers())
    for name, tensor in (*student.named_parameters(), *student.named_buffers()):
        if id(tensor) not in inside and name in known and known[name].shape == tensor.shape:
            tensor.copy_(known[name])


def _tensors(module: nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(), *module.buffers()]


@torch.no_grad()
def copy_mix_(student: nn.Module, teacher: nn.Module, origin: tuple[int, ...]) -> None:
    """Start a learned mix from the teacher's logits, if both mix the same layers in the same way."""
    if not (isinstance(student, LayerMix) and isinstance(teacher, LayerMix)):
        return
    wanted = [origin[layer] for layer in student.layers]
    if student.norm != teacher.norm or not set(wanted) <= set(teacher.layers):
        return
    indices = [teacher.layers.index(layer) for layer in wanted]
    student.logits.copy_(teacher.logits[:, indices])
    student.scale.copy_(teacher.scale)
