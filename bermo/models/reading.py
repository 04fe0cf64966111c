"""What all models with a head share: texts to mixed vectors, to one vector each, and to typed outputs."""

from typing import Any, cast

import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils import ModelOutput

from bermo.errors import BermoError
from bermo.models.encoder import BermoModel, BermoPreTrainedModel
from bermo.nn.heads import masked_mean, pooled_rows

Inputs = tuple[Tensor | None, ...]


def encode(
    model: BermoModel,
    inputs: Inputs,
    output_hidden_states: bool | None,
    output_attentions: bool | None,
    rows: Tensor | None = None,
) -> BaseModelOutput:
    """Return the mixed vectors of all tokens, or of those at `rows`."""
    outputs = model(
        *inputs,
        rows=rows,
        output_hidden_states=output_hidden_states,
        output_attentions=output_attentions,
        return_dict=True,
    )
    return cast(BaseModelOutput, outputs)


def pool_texts(
    model: BermoModel,
    inputs: Inputs,
    output_hidden_states: bool | None,
    output_attentions: bool | None,
) -> tuple[Tensor, BaseModelOutput]:
    """Return one vector per text, by the config's pooling, and the outputs it was taken from."""
    input_ids, mask, _, inputs_embeds = inputs
    if mask is None:
        given = cast(Tensor, inputs_embeds if input_ids is None else input_ids)
        mask = torch.ones(given.shape[:2], dtype=torch.long, device=given.device)
    pooling = model.config.pooling
    rows = None if pooling == "mean" else pooled_rows(pooling, mask)
    outputs = encode(model, inputs, output_hidden_states, output_attentions, rows)
    mixed = cast(Tensor, outputs.last_hidden_state)
    return (masked_mean(mixed, mask) if rows is None else mixed[:, 0]), outputs


def flat_pairs(inputs: Inputs) -> Inputs:
    """Put the two texts of a row one after the other: (B, 2, T) -> (2 B, T)."""
    ids = inputs[0]
    if ids is not None and (ids.ndim != 3 or ids.shape[1] != 2):
        raise BermoError(
            "The model reads the two texts of a pair apart, so input_ids must be (rows, 2, tokens), but got"
            f" {tuple(ids.shape)}. Tokenise each text by itself."
        )
    return tuple(None if value is None else value.flatten(0, 1) for value in inputs)


def rest_of(outputs: BaseModelOutput, loss: Tensor | None) -> dict[str, Any]:
    """Return what every output has beside its answers."""
    return {"loss": loss, "hidden_states": outputs.hidden_states, "attentions": outputs.attentions}


def returned(model: BermoPreTrainedModel, result: ModelOutput, return_dict: bool | None) -> Any:
    """Return an output as the caller or the config wants it: typed, or as a tuple."""
    wants_dict = model.config.return_dict if return_dict is None else return_dict
    return result if wants_dict else result.to_tuple()
