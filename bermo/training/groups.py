"""Parameter groups of a model for an optimiser in a loop of one's own, or in transformers.Trainer."""

from typing import Any

from transformers import PreTrainedModel

from bermo.models.encoder import BermoPreTrainedModel
from bermo.nn.masked import scores_of
from bermo.spec import TrainSpec
from bermo.training.schedule import rate_groups


def parameter_groups(
    model: PreTrainedModel,
    lr: float,
    *,
    mix_lr: float = 1e-2,
    score_lr: float = 1e-2,
    weight_decay: float = 0.0,
) -> list[dict[str, Any]]:
    """Return all weights of a model for an optimiser, each at the rate that `bermo train` would give it.

    Encoder and head have the rate `lr`, the mix and the scores of masks rates of their own and no decay; nor
    have biases and norms. Call it after `prune_`:

        torch.optim.AdamW(bermo.parameter_groups(model, lr=3e-5))

        >>> model = bermo.BermoForSequenceClassification.from_backbone("box")
        >>> sorted({group["lr"] for group in bermo.parameter_groups(model, lr=3e-5)})
        [3e-05, 0.01]
    """
    mix = model.mix.parameters() if isinstance(model, BermoPreTrainedModel) else ()
    settings = TrainSpec(lr=lr, mix_lr=mix_lr, weight_decay=weight_decay)
    return rate_groups(model, settings, [(mix, mix_lr), (scores_of(model), score_lr)])
