"""Fake int8 on a model: quantisers on what `bermo export --to onnx-int8` turns into int8, and nothing else.

    every matrix that all tokens are multiplied with, and its input     every table of 64 embeddings or more

The matrices of a head that reads one vector a text or pair stay in fp32, as in the graph. The quantisers are
parametrizations and hooks (bermo.nn.quantizers); the weights themselves stay in fp32 and are saved so. A
model that was trained so says it in its config: `quantized` is "int8".
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn
from transformers import PreTrainedModel

from bermo.encoders.sites import layers_of, linear_modules
from bermo.encoders.structure import anatomy_of
from bermo.models.top import can_cut_top
from bermo.nn.heads import PairHead, PooledHead
from bermo.nn.masked import attach_mask_
from bermo.nn.quantizers import (
    Codes,
    InputQuantizer,
    Kind,
    SplitQuantizer,
    Switch,
    WeightQuantizer,
    split_ternary,
)

NAME = "quantization"
"""The submodule of a model that holds the switch of its quantisers."""
MARK = "quantized"
"""The field of a model's config that says for which precision it was trained."""
SMALLEST_TABLE = 64
"""Rows from which the export stores a table of embeddings in int8."""


@dataclass(frozen=True)
class Matrix:
    """A module whose matrix is int8 in the graph."""

    name: str
    module: nn.Module
    is_transposed: bool
    reads_first: bool
    """Whether the graph multiplies it with the first token of each text alone."""

    def quantize_(self, switch: Switch, codes: Codes = "int8", is_split: bool = False) -> None:
        """Put fake quantisers on the matrix and, always in int8, on its input."""
        self.module.register_forward_pre_hook(InputQuantizer(switch, self.reads_first))
        _attach_(
            self.module, switch, "transposed matrix" if self.is_transposed else "matrix", codes, is_split
        )


def int8_matrices(model: PreTrainedModel) -> list[Matrix]:
    """List the modules whose matrices are int8 in the graph."""
    heads = [module for module in model.modules() if isinstance(module, PooledHead | PairHead)]
    whole = {id(part) for head in heads for part in head.modules()}
    names = {id(module): name for name, module in model.named_modules()}
    firsts = _reading_firsts(model)
    return [
        Matrix(names[id(module)], module, is_transposed, id(module) in firsts)
        for module, is_transposed in linear_modules(model)
        if id(module) not in whole
    ]


def attach_quantizers_(model: PreTrainedModel, codes: Codes = "int8", is_split: bool = False) -> Switch:
    """Put fake quantisers on a model, switched off, and return their switch.

    Int8's weights are saved as they are, since the export rounds them; others as their codes say them. Split
    weights of three values become sums of two with two values.
    """
    switch = Switch(is_saved=codes != "int8").to(model.device)
    for matrix in int8_matrices(model):
        matrix.quantize_(switch, codes, is_split)
    for module in model.modules():
        if isinstance(module, nn.Embedding) and module.num_embeddings >= SMALLEST_TABLE:
            _attach_(module, switch, "table", codes, is_split)
    model.add_module(NAME, switch)
    return switch


def _attach_(module: nn.Module, switch: Switch, kind: Kind, codes: Codes, is_split: bool) -> None:
    """Put a quantiser on a module's weight; a split one takes the weight's second half for its own."""
    if not is_split:
        attach_mask_(module, WeightQuantizer(switch, kind, codes))
        return
    weight = cast(nn.Parameter, module.weight)
    first, second = split_ternary(weight, kind == "table")
    quantizer = SplitQuantizer(switch, kind, second)
    quantizer.second.requires_grad_(weight.requires_grad)
    with torch.no_grad():
        weight.copy_(first)
    attach_mask_(module, quantizer)


def switch_of(model: nn.Module) -> Switch | None:
    """Return the switch of a model's fake quantisers, if it has some."""
    known = model._modules.get(NAME)
    return known if isinstance(known, Switch) else None


@contextmanager
def without_quantizers(model: nn.Module) -> Iterator[None]:
    """Let the weights of a model be read as they are saved, not as int8, inside the block."""
    switch = switch_of(model)
    if switch is None or switch.is_saved:
        yield
        return
    was_on = bool(switch.is_on)
    switch.set_(False)
    try:
        yield
    finally:
        switch.set_(was_on)


def int8_copy(model: PreTrainedModel) -> PreTrainedModel:
    """Return a copy of a model that computes as its int8 graph does."""
    other = copy.deepcopy(model)
    attach_quantizers_(other).set_(True)
    return other


def _reading_firsts(model: PreTrainedModel) -> set[int]:
    """Return the ids of the top layer's matrices that the graph multiplies with the first token alone."""
    if not can_cut_top(model) or model.config.pooling != "first":
        return set()
    top, anatomy = layers_of(model)[-1], anatomy_of(model)
    of_all = {id(part) for path in anatomy.heads.inputs[1:] for part in top.get_submodule(path).modules()}
    return {id(module) for module, _ in linear_modules(top)} - of_all
