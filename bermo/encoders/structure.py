"""Heads and neurons: which rows and columns belong to each, in every family, and how to take some out.

    head h    = its rows of the query, key and value matrices + its columns of the output matrix
    neuron n  = row n of the first feed-forward matrix + column n of the second (two rows of a gated matrix)

A gate on a unit is a factor on its columns of the second matrix: where it is 0, nothing reads the unit. So a
unit whose columns are all zero is dead, and `resize_` takes its rows and columns out; no output changes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from bermo.encoders.factors import embedding_rank_of, give_factored_table_, give_factors_, ranks_in
from bermo.encoders.families import family_of
from bermo.encoders.family import Anatomy, Units
from bermo.encoders.shape import LayerShape, Structure
from bermo.encoders.sites import Site, encoder_of, layers_of
from bermo.errors import BermoError
from bermo.nn.factored import FactoredLinear

Kind = Literal["heads", "neurons"]


@dataclass(frozen=True, kw_only=True)
class Group:
    """All heads of one layer, or all neurons of one of its feed-forward parts."""

    kind: Kind
    layer: int
    name: str
    count: int
    """Units in it now."""
    size: int
    """Columns of a unit: the size of a head, or 1."""
    parts: int
    is_interleaved: bool
    inputs: tuple[Site, ...]
    output: Site

    @property
    def cost(self) -> int:
        """Weights of one unit in all its matrices."""
        matrices = (*self.inputs, self.output)
        return sum(site.original.numel() for site in matrices) // self.count

    def units_of_output(self, weight: Tensor) -> Tensor:
        """View the reading matrix as (units, its weights)."""
        matrix = weight if self.output.is_transposed else weight.flatten(1).T
        return matrix.reshape(self.count, -1)

    def zero_units_(self, gone: Tensor) -> None:
        """Write zeros over what is read from some units (a boolean for each), in place."""
        weight = self.output.original
        columns = gone.to(weight.device).repeat_interleave(self.size)
        if self.output.is_transposed:
            weight[columns] = 0
        else:
            weight.flatten(1)[:, columns] = 0

    def input_units(self) -> int:
        """Into how many pieces, one after the other, the rows of a feeding matrix fall."""
        return self.count * (1 if self.is_interleaved else self.parts)


class ClosedAttention(nn.Module):
    """What is left of an attention without heads: the bias of its output, and the norm where it holds one."""

    def __init__(self, core: nn.Module, output: str | None, norm: str | None) -> None:
        super().__init__()
        self.output, self.norm = output, norm
        for name in (output, norm):
            if name is not None:
                self.add_module(name, core.get_submodule(name))

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, None]:
        attended = hidden_states.new_zeros((*hidden_states.shape[:-1], 0))
        if self.output is not None:
            attended = self.get_submodule(self.output)(attended)
        if self.norm is not None:
            attended = self.get_submodule(self.norm)(hidden_states + attended)
        return attended, None


def anatomy_of(model: PreTrainedModel) -> Anatomy:
    """Return where the heads and neurons of a model's family are; mixed heads cannot be separated."""
    config = encoder_of(model).config
    if getattr(config, "talking_head", False):
        raise BermoError("The heads of this DeBERTa are mixed with each other, so none can go alone.")
    anatomy = family_of(config).anatomy
    if anatomy is None:
        raise BermoError(
            f"{config.model_type} has no attention heads and neurons, so none can be measured or taken out."
            " Choose an encoder that attends, or leave this out."
        )
    return anatomy


def groups_of(model: PreTrainedModel) -> list[Group]:
    """Return the heads and the neurons of every distinct layer, first to last; empty ones are left out."""
    anatomy = anatomy_of(model)
    return [
        group
        for number, layer in enumerate(layers_of(model), start=1)
        for group in _groups_of_layer(layer, number, anatomy)
        if group.count
    ]


def structure_of(model: PreTrainedModel) -> Structure:
    """Return the shape that the layers of a model have now."""
    known = getattr(model.config, "structure", None)
    if known is not None:
        return Structure.from_dict(known)
    anatomy = anatomy_of(model)
    shapes = []
    for number, layer in enumerate(layers_of(model), start=1):
        heads, *neurons = _groups_of_layer(layer, number, anatomy)
        shapes.append(LayerShape(heads=tuple(range(heads.count)), neurons=tuple(g.count for g in neurons)))
    return Structure(layers=tuple(shapes))


def with_ranks(structure: Structure, model: PreTrainedModel) -> Structure:
    """Return a structure with the ranks that a model's factors have now."""
    pairs = zip(structure.layers, layers_of(model), strict=True)
    shapes = tuple(replace(shape, ranks=ranks_in(layer)) for shape, layer in pairs)
    return replace(structure, layers=shapes, embedding_rank=embedding_rank_of(encoder_of(model)))


@torch.no_grad()
def resize_(encoder: PreTrainedModel, structure: Structure) -> None:
    """Give a stock encoder the recorded shape, in place; its weights are expected to come later."""
    anatomy, layers = anatomy_of(encoder), layers_of(encoder)
    if len(layers) != len(structure.layers):
        raise BermoError(
            f"The config records {len(structure.layers)} layer shapes, but the encoder has {len(layers)}"
            " layers. The config was changed by hand: take it from where the model was saved."
        )
    for number, (layer, shape) in enumerate(zip(layers, structure.layers, strict=True), start=1):
        groups = _groups_of_layer(layer, number, anatomy)
        kept: list[Sequence[int]] = [shape.heads, *(range(n) for n in shape.neurons)]
        for group, units in zip(groups, kept, strict=True):
            keep_units_(layer, anatomy, group, units, shape.heads)
        give_factors_(layer, shape.ranks)
    if structure.embedding_rank is not None:
        give_factored_table_(encoder, structure.embedding_rank)
    if not structure.has_final_norm:
        remove_final_norm_(encoder)


def remove_final_norm_(encoder: PreTrainedModel) -> None:
    """Take the final norm out of an encoder that has one: its last layer is read as it is."""
    name = anatomy_of(encoder).final_norm
    if name is not None:
        encoder.set_submodule(name, nn.Identity())


@torch.no_grad()
def keep_units_(
    layer: nn.Module, anatomy: Anatomy, group: Group, units: Sequence[int], heads: Sequence[int]
) -> None:
    """Take all but `units` of a group out of a layer, in place; `heads`: the first numbers of kept heads."""
    is_heads = group.kind == "heads"
    if len(units) < group.count:
        device = group.output.original.device
        index = torch.as_tensor(list(units), dtype=torch.long, device=device)
        pieces = index
        if not group.is_interleaved:
            pieces = torch.cat([index + part * group.count for part in range(group.parts)])
        for site in group.inputs:
            _select_(site.module, site.parameter, pieces, group.input_units(), is_output=True)
        _select_(group.output.module, group.output.parameter, index, group.count, is_output=False)
        if not units and group.output.is_transposed:
            _replace_empty_(layer, group)
        if is_heads:
            _resize_core_(layer.get_submodule(anatomy.core), anatomy, group, index)
    if is_heads and anatomy.has_bias_of_heads and len(units):
        _pick_bias_(layer.get_submodule(anatomy.core), heads)
    if is_heads and not units and group.output.parameter == "weight":
        _close_(layer, anatomy)


def _groups_of_layer(layer: nn.Module, number: int, anatomy: Anatomy) -> list[Group]:
    groups = [_group(layer, number, "heads", anatomy.heads, _head_size(layer, anatomy), "heads")]
    for units in anatomy.neurons:
        for concrete in _unfold(layer, units):
            name = concrete.inputs[0].split(".")
            suffix = f".{name[1]}" if name[0] == "ffn" and len(name) > 2 else ""
            groups.append(_group(layer, number, "neurons", concrete, 1, f"neurons{suffix}"))
    return groups


def _unfold(layer: nn.Module, units: Units) -> Iterator[Units]:
    """Put a number for the star in the paths: a layer of MobileBERT has several feed-forward parts."""
    if "*" not in units.output:
        yield units
        return
    folder = units.output.split(".*")[0]
    children = dict(layer.named_children()).get(folder)
    for index in range(len(list(children.children())) if children is not None else 0):
        inputs = tuple(name.replace("*", str(index)) for name in units.inputs)
        yield Units(inputs=inputs, output=units.output.replace("*", str(index)), parts=units.parts)


def _group(layer: nn.Module, number: int, kind: Kind, units: Units, size: int, name: str) -> Group:
    # A closed attention has none of them, and DeBERTa lacks some where its config says so.
    inputs = tuple(_site(layer, number, path) for path in units.inputs if _has(layer, path))
    output = _site(layer, number, units.output, is_output=True)
    shape = output.original.shape
    columns = shape[0] if output.is_transposed else output.original[0].numel()
    return Group(
        kind=kind,
        layer=number,
        name=f"layer.{number}.{name}",
        count=columns // size,
        size=size,
        parts=units.parts,
        is_interleaved=units.is_interleaved,
        inputs=inputs,
        output=output,
    )


def _has(layer: nn.Module, path: str) -> bool:
    parent, _, name = path.rpartition(".")
    try:
        return hasattr(layer.get_submodule(parent), name)
    except AttributeError:
        return False


def _site(layer: nn.Module, number: int, path: str, is_output: bool = False) -> Site:
    parent, _, name = path.rpartition(".")
    owner = layer.get_submodule(parent)
    matrix = getattr(owner, name)
    if isinstance(matrix, FactoredLinear):
        part = "down" if is_output else "up"
        return Site(f"layer.{number}.{path}.{part}", number, getattr(matrix, part), "weight")
    if isinstance(matrix, nn.Module):
        return Site(f"layer.{number}.{path}", number, matrix, "weight", isinstance(matrix, Conv1D))
    return Site(f"layer.{number}.{path}", number, owner, name)


def _head_size(layer: nn.Module, anatomy: Anatomy) -> int:
    core = layer.get_submodule(anatomy.core)
    return 1 if isinstance(core, ClosedAttention) else int(getattr(core, anatomy.head_size))


def _select_(module: nn.Module, name: str, pieces: Tensor, count: int, is_output: bool) -> None:
    """Keep some of the `count` even pieces of a matrix's outputs (with its bias) or inputs."""
    weight = cast(Tensor, getattr(module, name))
    # XLNet: (width, heads, size), whichever way the matrix is read.
    if weight.ndim == 3:
        setattr(module, name, _kept(weight, 1, pieces, count))
        return
    is_transposed = isinstance(module, Conv1D)
    setattr(module, name, _kept(weight, int(is_output == is_transposed), pieces, count))
    if is_output and getattr(module, "bias", None) is not None:
        module.bias = _kept(cast(Tensor, module.bias), 0, pieces, count)
    size = weight.shape[int(is_output == is_transposed)] // count * len(pieces)
    names = ("nf", "nx") if is_transposed else ("out_features", "in_features")
    setattr(module, names[0] if is_output else names[1], size)


def _kept(tensor: Tensor, axis: int, pieces: Tensor, count: int) -> nn.Parameter:
    size = tensor.shape[axis] // count
    indices = (pieces[:, None] * size + torch.arange(size, device=pieces.device)).flatten()
    kept = tensor.detach().index_select(axis, indices).contiguous()
    return nn.Parameter(kept, requires_grad=tensor.requires_grad)


def _resize_core_(core: nn.Module, anatomy: Anatomy, group: Group, index: Tensor) -> None:
    for name in anatomy.head_counts:
        setattr(core, name, len(index))
    for name in anatomy.widths:
        setattr(core, name, len(index) * group.size)
    for name in anatomy.head_vectors:
        vector = cast(Tensor, getattr(core, name))
        # XLNet's are (…, heads, size), DeBERTa's (heads × size).
        axis = max(vector.ndim - 2, 0)
        setattr(core, name, _kept(vector, axis, index, group.count))


def _pick_bias_(core: nn.Module, heads: Sequence[int]) -> None:
    """Let the core see only its own heads' part of the position bias that the encoder hands to all layers."""
    if not hasattr(core, "first_heads"):
        core.register_forward_pre_hook(_pick_own_bias)
    cast(Any, core).first_heads = list(heads)


def _pick_own_bias(core: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    hidden, mask, bias, *rest = args
    return hidden, mask, None if bias is None else bias[:, core.first_heads], *rest


def _replace_empty_(layer: nn.Module, group: Group) -> None:
    """Put a Linear for a Conv1D of no inputs, which cannot compute; what is left of both is the bias."""
    old = cast(Conv1D, group.output.module)
    # On the meta device no random numbers are drawn for the new matrix.
    with torch.device("meta"):
        new = nn.Linear(1, old.nf)
    new.in_features, new.bias = 0, old.bias
    new.weight = nn.Parameter(old.weight.detach().T.contiguous())
    layer.set_submodule(group.output.name.removeprefix(f"layer.{group.layer}."), new)


def _close_(layer: nn.Module, anatomy: Anatomy) -> None:
    prefix = f"{anatomy.core}."
    output = anatomy.heads.output
    norm = anatomy.norm
    closed = ClosedAttention(
        layer.get_submodule(anatomy.core),
        output.removeprefix(prefix) if output.startswith(prefix) else None,
        norm.removeprefix(prefix) if norm is not None else None,
    )
    layer.set_submodule(anatomy.core, closed)
