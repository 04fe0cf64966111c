"""Which layers of a pretrained encoder are kept and then fine-tuned: Poor Man's BERT (Sajjad et al. 2023).

first         the lowest k                              last        the highest k
alternate     every second one goes, from the last but one downwards
symmetric     the lowest ⌈k/2⌉ and the highest ⌊k/2⌋
contribution  the k whose output is least like their input: mean cosine of h_j and h_{j−1} over some texts,
              at the token that stands for a text
"""

from collections.abc import Sequence

import torch
from torch.nn.functional import cosine_similarity

from bermo.data.batches import in_order
from bermo.data.features import Features
from bermo.data.tensors import collate
from bermo.encoders.backbone import hidden_states, make_inputs
from bermo.encoders.families import family_of
from bermo.errors import BermoError
from bermo.models.encoder import BermoModel
from bermo.nn.heads import masked_mean, pooled_rows, take_rows
from bermo.spec import ModelSpec

NUM_TEXTS = 128
BATCH = 32


def kept_layers(spec: ModelSpec, known: int, features: Features) -> tuple[int, ...] | None:
    """Return the layers (1 = the first of `known`) that a spec keeps; None where it keeps all."""
    if spec.first_layers is not None:
        return tuple(range(1, spec.first_layers + 1))
    if spec.keep_layers is None:
        return None
    count = spec.keep_layers
    match spec.keep_by:
        case "contribution":
            return most_changing(likeness(BermoModel.from_backbone(spec.backbone, "none"), features), count)
        case "alternate":
            return alternate(known, count)
        case "symmetric":
            return (*range(1, (count + 1) // 2 + 1), *range(known - count // 2 + 1, known + 1))
        case "last":
            return tuple(range(known - count + 1, known + 1))
        case _:
            return tuple(range(1, count + 1))


def alternate(known: int, count: int) -> tuple[int, ...]:
    """Leave out every second layer, from the last but one downwards."""
    if known - count > known // 2:
        raise BermoError(
            f"--keep-by alternate leaves out every second layer, at most {known // 2} of {known}, but"
            f" --keep-layers {count} leaves out {known - count}. Keep more, or choose another way."
        )
    dropped = range(known - 1, 0, -2)[: known - count]
    return tuple(layer for layer in range(1, known + 1) if layer not in dropped)


def most_changing(likenesses: Sequence[float], count: int) -> tuple[int, ...]:
    """Return so many layers whose outputs are least like their inputs; among equals the lower ones."""
    order = sorted(range(len(likenesses)), key=lambda index: (likenesses[index], index))
    return tuple(sorted(index + 1 for index in order[:count]))


@torch.no_grad()
def likeness(model: BermoModel, features: Features) -> list[float]:
    """Return for each layer the mean cosine between the text's token in its input and in its output."""
    pooling = family_of(model.backbone.config).pooling
    total, count = torch.zeros(0), 0
    for numbers in in_order(features, BATCH, torch.arange(min(NUM_TEXTS, len(features))).numpy()):
        batch = collate(features, numbers)
        ids, mask = (batch[name].flatten(0, -2) for name in ("input_ids", "attention_mask"))
        layers = hidden_states(
            model.backbone, make_inputs(model.backbone, ids, mask, None, None)
        ).hidden_states
        assert layers is not None
        if pooling == "mean":
            read_LBD = torch.stack([masked_mean(hidden, mask) for hidden in layers])
        else:
            rows_B1 = pooled_rows(pooling, mask)
            read_LBD = torch.stack([take_rows(hidden, rows_B1)[:, 0] for hidden in layers])
        cosines_L = cosine_similarity(read_LBD[1:], read_LBD[:-1], dim=-1).sum(1)
        total, count = cosines_L + (total if count else 0), count + len(ids)
    return (total / count).tolist()
