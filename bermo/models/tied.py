"""A model whose layers share their weights (bermo.encoders.tied), told to transformers, which then saves and
loads each set once.
"""

from bermo.encoders.tied import note_tied_, share_layers_
from bermo.models.encoder import BermoPreTrainedModel


def tie_layers_(model: BermoPreTrainedModel, groups: int) -> None:
    """Let the layers of a model share their weights in so many groups, in place; they start as their mean."""
    share_layers_(model.core.backbone, groups)
    note_tied_(model.core, model.core.backbone)
    model.tie_weights()
