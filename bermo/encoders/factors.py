"""Layers and tables of words whose matrices are two factors of low rank each (nn/factored.py).

A layer's heads and neurons are rows of the factor B of what feeds them and columns of the factor A of what
reads them, so that a factorised model is pruned and shrunk like any other.
"""

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from bermo.errors import BermoError
from bermo.nn.factored import FactoredEmbedding, FactoredLinear, factors, rank_of


def ranks_in(layer: nn.Module) -> dict[str, int]:
    """Return the rank of every factorised matrix of a layer, by its path."""
    return {path: part.rank for path, part in layer.named_modules() if isinstance(part, FactoredLinear)}


def embedding_rank_of(encoder: PreTrainedModel) -> int | None:
    """Return the rank of an encoder's table of words; None where it is whole."""
    table = encoder.get_input_embeddings()
    return table.rank if isinstance(table, FactoredEmbedding) else None


def give_factors_(layer: nn.Module, ranks: Mapping[str, int]) -> None:
    """Give a layer the recorded factors, in place; their weights are expected to come later."""
    for path, rank in ranks.items():
        layer.set_submodule(path, _like(layer.get_submodule(path), rank))


def give_factored_table_(encoder: PreTrainedModel, rank: int) -> FactoredEmbedding:
    """Give an encoder a table of words in factors, in place; its weights are expected to come later."""
    old = cast(nn.Embedding, encoder.get_input_embeddings())
    words, width = old.weight.shape
    new = FactoredEmbedding(words, width, rank, old.padding_idx).to(old.weight)
    encoder.set_input_embeddings(new)
    return new


@torch.no_grad()
def factorise_layer_(layer: nn.Module, amount: float) -> None:
    """Replace a layer's matrices by their nearest factors, in place, where these have fewer numbers.

    `amount` is a rank, or under 1 the share of a matrix's numbers that its factors have.
    """
    known = [(path, part) for path, part in layer.named_modules() if isinstance(part, nn.Linear | Conv1D)]
    for path, module in known:
        weight = _weight(module)
        rank = rank_of(weight.shape[0], weight.shape[1], amount)
        if rank is None:
            continue
        new = _like(module, rank)
        down, up = factors(weight, rank)
        new.down.weight.copy_(down)
        new.up.weight.copy_(up)
        if module.bias is not None:
            new.up.bias.copy_(cast(Tensor, module.bias))
        layer.set_submodule(path, new)


@torch.no_grad()
def factorise_table_(encoder: PreTrainedModel, amount: float) -> None:
    """Replace an encoder's table of words by its nearest factors, in place; `amount` as for a layer."""
    old = cast(Tensor, encoder.get_input_embeddings().weight)
    words, width = old.shape
    rank = rank_of(words, width, amount)
    if rank is None:
        raise BermoError(
            f"embedding-rank must be at most {(words * width - 1) // (words + width)}, so that the factors of"
            f" the {words:,} × {width} table of words have fewer numbers, but got {amount:g}."
        )
    new = give_factored_table_(encoder, rank)
    down, up = factors(old.T, rank)
    new.table.weight.copy_(down.T)
    new.up.weight.copy_(up)


def _weight(module: nn.Module) -> Tensor:
    weight = cast(Tensor, module.weight)
    return weight.T if isinstance(module, Conv1D) else weight


def _like(module: nn.Module, rank: int) -> FactoredLinear:
    outputs, inputs = _weight(module).shape
    new = FactoredLinear(inputs, outputs, rank, has_bias=module.bias is not None)
    return new.to(cast(Tensor, module.weight))
