"""LoRA as a method: the encoder is frozen; low-rank updates of its layers' matrices, mix and head learn."""

from torch import nn

from bermo.encoders.sites import prunable_sites
from bermo.models.encoder import BermoPreTrainedModel
from bermo.nn.lora import LowRankUpdate
from bermo.nn.masked import attach_mask_

FASTER = 10
"""Low-rank updates usually take about so many times the rate of a whole fine-tuning."""


def start_lora_(model: BermoPreTrainedModel, rank: int) -> list[nn.Parameter]:
    """Freeze the encoder, put updates on every matrix of its layers, and return their parameters."""
    model.core.backbone.requires_grad_(False)
    updates = []
    for site in prunable_sites(model):
        update = LowRankUpdate(site.original, rank)
        attach_mask_(site.module, update, site.parameter)
        updates.append(update)
    return [parameter for update in updates for parameter in update.parameters()]


def rate_of_lora(lr: float, given: float | None) -> float:
    """Return the rate of the updates: the one that is given, or some times the encoder's."""
    return FASTER * lr if given is None else given
