"""A model with matrices of low rank: its layers' and its table of words', by singular values.

The ranks are recorded in the model's structure, beside heads and neurons, so that it saves, loads, shrinks
and teaches as every model does.
"""

from typing import cast

from bermo.encoders.factors import factorise_layer_, factorise_table_
from bermo.encoders.sites import encoder_of, layers_of
from bermo.encoders.structure import structure_of, with_ranks
from bermo.errors import BermoError
from bermo.models.config import BermoConfig
from bermo.models.encoder import BermoPreTrainedModel


def factorise_(model: BermoPreTrainedModel, amount: float | None, embedding_rank: float | None) -> None:
    """Replace the matrices of a model's layers and its table of words by factors, in place.

    Each amount is a rank, or under 1 the share of a matrix's numbers that its factors have; None: not at all.
    """
    known = structure_of(model)
    if known.has_factors:
        raise BermoError(
            "The model has factors of low rank already. Give the one that it was made from, or leave"
            " --low-rank and --embedding-rank out."
        )
    if amount is not None:
        for layer in layers_of(model):
            factorise_layer_(layer, amount)
    if embedding_rank is not None:
        factorise_table_(encoder_of(model), embedding_rank)
    structure = with_ranks(known, model)
    if amount is not None and not any(shape.ranks for shape in structure.layers):
        raise BermoError(
            f"low-rank {amount:g} leaves no matrix of the layers with fewer numbers. Give a smaller rank, or"
            " a share such as 0.5."
        )
    cast(BermoConfig, model.config).structure = structure.to_dict()
