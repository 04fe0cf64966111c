"""Small text classifiers of any family, and batches that they read."""

import torch
from torch import Tensor, nn

import bermo
from tests.tiny import make_batch, make_config


def model_of(family: str, layers: int = 3) -> bermo.BermoForSequenceClassification:
    torch.manual_seed(0)
    config = make_config(family)
    config.num_hidden_layers = layers
    return bermo.BermoForSequenceClassification.from_backbone(config, num_labels=2)


def batch_of(model: bermo.BermoForSequenceClassification) -> dict[str, torch.Tensor]:
    return make_batch(model.config.backbone.model_type)


def without_dropout(family: str, layers: int = 2) -> nn.Module:
    model = model_of(family, layers).train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    model.mix.dropout = 0.0
    return model


def small_batch(model: nn.Module) -> dict[str, Tensor]:
    """Two texts of three tokens: the interpreter runs one program after the other."""
    batch = {name: tensor[:2, :3] for name, tensor in batch_of(model).items()}
    return batch | {"labels": torch.tensor([0, 1])}
