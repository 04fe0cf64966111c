"""The encoder of a pretraining as a folder: Hugging Face's own model wherever there is one."""

import copy
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForMaskedLM, PreTrainedModel

from bermo.encoders.families import family_of
from bermo.encoders.two_streams import with_words
from bermo.models.encoder import BermoModel
from bermo.models.pretraining import MaskedPretraining, PermutedPretraining, Pretraining
from bermo.models.start import dropouts_of, head_modules, set_dropouts_


def save_encoder(
    model: Pretraining, folder: Path, later_dropouts: Mapping[str, float], is_half: bool
) -> None:
    """Save the encoder as Hugging Face's own model, with its head of words where the family's is like ours.

    One with an inner mix is saved as a BermoModel: the family's own class would leave the mix out.
    """
    ordinary = _ordinary(model)
    config = ordinary.config.backbone if isinstance(ordinary, BermoModel) else ordinary.config
    before = dropouts_of(config)
    made: dict[int, Tensor] = {}  # by address, so that tied weights stay tied and are written once
    for weight in ordinary.state_dict().values():
        if weight.data_ptr() not in made:
            kept = weight.detach().cpu().contiguous()
            made[weight.data_ptr()] = kept.half() if is_half and kept.is_floating_point() else kept
    state = {name: made[weight.data_ptr()] for name, weight in ordinary.state_dict().items()}
    set_dropouts_(config, later_dropouts)
    try:
        ordinary.save_pretrained(folder, state_dict=state)
    finally:
        set_dropouts_(config, before)


def _ordinary(model: Pretraining) -> PreTrainedModel:
    encoder = model.encoder
    backbone = encoder.backbone
    parts = family_of(backbone.config).masked_head
    if getattr(backbone.config, "inner_mix", "none") != "none":
        return encoder
    if isinstance(model, PermutedPretraining):
        return with_words(backbone, model.bias)
    if not isinstance(model, MaskedPretraining) or parts is None:
        return backbone
    whole = AutoModelForMaskedLM.from_config(copy.deepcopy(backbone.config), dtype=torch.float32)
    head = model.words.head
    with torch.no_grad():
        whole.base_model.load_state_dict(backbone.state_dict())
        for theirs, own in head_modules(whole, head):
            theirs.load_state_dict({name: own.get_parameter(name) for name in theirs.state_dict()})
        whole.get_parameter(parts.bias).copy_(head.decoder.bias)
    return whole
