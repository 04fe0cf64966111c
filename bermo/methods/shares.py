"""The share of each layer in a learned mix: of a model at an evaluation, and of the model that is kept."""

from bermo.models.tasks import BermoPreTrainedModel
from bermo.runs.rows import SHARE
from bermo.training.average import averaged
from bermo.training.job import Fit


def mix_shares(model: BermoPreTrainedModel) -> dict[str, float]:
    """Return the share of each layer as it is now, by the names of metrics.jsonl; a single one has none."""
    with averaged(model):
        shares = model.mix.weights.tolist()
    if len(shares) < 2:
        return {}
    return {f"{SHARE}{layer}": round(share, 6) for layer, share in zip(model.mix.layers, shares, strict=True)}


def kept_shares(model: BermoPreTrainedModel, ended: Fit, keeps_best: bool) -> list[float]:
    """Return the shares of the model that is kept: of the best evaluation, or else as they are now."""
    known = [ended.described.get(f"{SHARE}{layer}") for layer in model.mix.layers]
    best = [share for share in known if share is not None]
    if keeps_best and len(best) == len(known):
        return best
    return [round(float(share), 6) for share in model.mix.weights]
